"""In which form a server takes our requests: found by asking, the same for both servers.

Chat comes first, for that is what drafters were trained on; a model without a chat template takes plain completions.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from firsttoken.drive.client import LoadError, Server, ask, fetch
from firsttoken.drive.prompts import Prompt

_TOKENS = 4


async def settled(client: httpx.AsyncClient, server: Server, body: Mapping[str, Any], *, like: Server | None = None) -> Server:
    """The server with model, route and body that it takes. `like`: a server whose form it must share. LoadError where it takes none."""
    model = server.model or await _model(client, server)
    forms = [
        replace(server, model=model, as_chat=as_chat, body=extra)
        for extra in ((body, {}) if body else ({},))
        for as_chat in (True, False)
        if (server.chat if as_chat else server.completions) is not None
    ]
    if like is not None:
        forms = [form for form in forms if (form.as_chat, dict(form.body)) == (like.as_chat, dict(like.body))]
    refused: LoadError | None = None
    for form in forms:
        try:
            await ask(client, form, Prompt(name="the first request", text="Name three colours."), tokens=_TOKENS, temperature=0, seed=0)
            return form
        except LoadError as error:
            if not error.refused:
                raise
            refused = error
    if refused is None:
        raise LoadError("the engine has neither chat nor completions, or not those that the other server has")
    raise LoadError(f"the server takes no request of ours, neither chat nor completion; the last answer: {refused}", refused.status)


async def _model(client: httpx.AsyncClient, server: Server) -> str | None:
    page = await fetch(client, server.models) if server.models is not None else None
    try:
        found = json.loads(page) if page is not None else {}
    except (ValueError, RecursionError):
        return None
    rows = found.get("data") if isinstance(found, dict) else None
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    name = first.get("id")
    return name if isinstance(name, str) else None
