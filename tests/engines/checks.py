"""What every healthy start must show, whatever the engine: one sentence a function."""

import tomllib
from datetime import datetime
from importlib import resources

from . import figures
from .life import Face, Life, Said

GENERATIONS = ("completion", "chat", "native")


def decided_ready(life: Life) -> None:
    result = life.result
    assert (life.run.code, result["verdict"]) == (0, "ready"), life
    assert result["reason"], life
    assert result["phase"] == "first_token", life
    assert life.status.document["verdict"] == "ready", life.status
    assert (life.wait.code, life.wait.document["verdict"]) == (0, "ready"), life.wait


def two_real_tokens(life: Life) -> None:
    asked = [request for request in life.result["requests"] if request["kind"] in GENERATIONS]
    assert [request["status"] for request in asked] == [200, 200], life
    assert all(request["text"] for request in asked), asked
    assert all(0 < request["first_token_s"] < life.result["elapsed_s"] for request in asked), asked


def names_what_was_launched(life: Life, engine: str, version: str, model: str) -> None:
    result = life.result
    assert (result["engine"]["name"], result["engine"]["version"]) == (engine, version), life
    assert (result["role"], result["world_size"]) == ("serves", life.launch.ranks), life
    assert result["command"] == list(life.launch.command), life
    assert result["endpoint"]["url"] == f"http://127.0.0.1:{life.launch.port}", life
    assert str(result["endpoint"]["model"]).endswith(model), life


def every_rank_is_a_member(life: Life) -> None:
    """A single rank bears no tag in its title, so it may go without a number."""
    ranks = {member["rank"] for member in life.result["members"]} - {None}
    assert ranks == set(range(life.launch.ranks)) or (life.launch.ranks == 1 and not ranks), life.result["members"]
    assert life.result["ranks"]["behind"] == [], life.result["ranks"]


def phases_in_the_profiles_order(life: Life, must: tuple[str, ...]) -> None:
    rows, order = life.result["phases"], _order(life)
    names = [row["name"] for row in rows]
    assert names == [name for name in order if name in names], life
    assert set(must) <= set(names), names
    begins = [row["began_s"] for row in rows]
    assert begins == sorted(begins), rows
    assert all(row["seconds"] is not None and row["ranks_done"] == life.launch.ranks for row in rows if row["name"] in must), rows


def durations_agree_with_the_log(life: Life, spans: figures.Spans, first_line: str) -> None:
    """Each phase whose first and last line the log shows; and the launch against the stamp of the engine's own first line."""
    started = datetime.fromisoformat(life.result["started_at"])
    log = figures.lines(life.log, started.astimezone().year)
    told = {row["name"]: row for row in life.result["phases"]}
    logged = {phase: seconds for phase, ends in spans.items() if (seconds := figures.span(log, *ends)) is not None}
    assert logged, life
    wrong = {
        phase: (told.get(phase), seconds) for phase, seconds in logged.items() if phase not in told or not _agree(told[phase], seconds)
    }
    assert not wrong, f"phase: (told, seconds by the log) {wrong}\n{life}"
    first = figures.first(log, first_line)
    assert first is not None, life
    assert figures.agree(told["process_start"]["seconds"], first - started.timestamp()), (told["process_start"], first, started)
    assert life.result["elapsed_s"] <= life.run.seconds + 1, (life.result["elapsed_s"], life.run.seconds)


def weights_take_what_the_engine_says(life: Life, pattern: str) -> None:
    """Where several ranks say it, the slowest counts."""
    said = figures.numbers(figures.lines(life.log, 2000), pattern)
    assert said, life
    told = life.result["weights"]
    assert told["seconds"] is not None, told
    assert abs(told["seconds"] - max(said)) <= max(0.5, 0.05 * max(said)), (told, said)
    assert told["shards"] == told["shards_done"], told


def nothing_left_after_stop(life: Life) -> None:
    assert life.stop.code == 0, life.stop
    assert life.left == (), life.stop


def replay_agrees(life: Life) -> None:
    assert life.replay.code == 0, life.replay
    replayed, lived = life.replay.document, life.result
    assert replayed["verdict"] == "ready", life.replay
    assert [row["name"] for row in replayed["phases"]] == [row["name"] for row in lived["phases"]], life.replay


def stays_failed(face: Face, said: Said) -> None:
    """That the server was ended afterwards, by itself or by us, does not change why it failed; who ended it may be added."""
    after = face("status", said.document["run"], "--json")
    why = after.document["reason"].partition("; then stopped (")[0]
    assert (after.document["verdict"], why) == ("failed", said.document["reason"]), after


def _agree(row: dict[str, float | None], seconds: float) -> bool:
    return row["seconds"] is not None and figures.agree(row["seconds"], seconds)


def _order(life: Life) -> list[str]:
    name = life.result["engine"]["name"].replace(".", "")
    profile = resources.files("firsttoken.knowledge") / "engines" / f"{name}.toml"
    order: list[str] = tomllib.loads(profile.read_text("utf-8"))["order"]
    return order
