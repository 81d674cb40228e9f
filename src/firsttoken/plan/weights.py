"""Where the files of a model's weights are on this machine, as far as names tell: a local path, or its place in the Hugging Face cache."""

import re

from firsttoken.plan.options import Read
from firsttoken.plan.world import UNKNOWN, World


def weight_files(model: str | None, read: Read, world: World) -> tuple[str, ...]:
    """Paths on this machine; empty where the model is neither local nor a name of the hub, or lies where this machine cannot see it.

    A model that is not in the cache yet gives the folder that its files will come to."""
    if not model or UNKNOWN in model + world.cwd:
        return ()
    path = world.path(model)
    if model.startswith(("/", "./", "../", "~")) or world.list_folder(path) is not None:
        here = world.to_here(path)
    else:
        cached = _cached(model, read, world)
        here = world.to_here(cached) if cached is not None else None
    return (here,) if here is not None else ()


_HUB_NAME = re.compile(r"[\w.\-]+/[\w.\-]+")


def _cached(model: str, read: Read, world: World) -> str | None:
    hub = _hub(read, world)
    if hub is None or _HUB_NAME.fullmatch(model) is None:
        return None
    folder = f"{hub}/models--{model.replace('/', '--')}"
    wanted = read.text("revision") or "main"
    named = world.read_text(f"{folder}/refs/{wanted}")
    snapshots = world.list_folder(f"{folder}/snapshots") or ()
    revision = named.strip() if named is not None else wanted
    if revision not in snapshots:
        return f"{folder}/snapshots/{snapshots[0]}" if len(snapshots) == 1 else folder
    return f"{folder}/snapshots/{revision}"


def _hub(read: Read, world: World) -> str | None:
    """The folder of the hub's cache, in the order of huggingface_hub's own constants; an engine's download folder goes before it."""
    env = world.env
    given = read.text("download_dir") or env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if given:
        return world.path(given)
    if home := env.get("HF_HOME"):
        return world.path(f"{home}/hub")
    if cache := env.get("XDG_CACHE_HOME"):
        return world.path(f"{cache}/huggingface/hub")
    return world.path("~/.cache/huggingface/hub") if env.get("HOME") else None
