"""An isolation as document, text and Markdown: their shape is a contract."""

from typing import Any

from firsttoken.model.isolation import Change, Isolation, Outcome, Purpose, Setting, Signature, Trial
from firsttoken.report.isolation import isolation_document, isolation_markdown, isolation_text, progress_line

GRAPHS = Setting(
    label="graphs (--graphs)",
    changes=(Change(kind="flag", name="--graphs", action="remove"), Change(kind="flag", name="--no-graphs", action="add")),
    phases=("graph_capture",),
    suspicion=0.35,
    because="works in graph_capture",
)
KEY = Setting(label="VLLM_API_KEY=****", changes=(Change(kind="env", name="VLLM_API_KEY", action="remove", values=("hunter2secret",)),))
HUNG = Signature(sort="blocked", phase="graph_capture", where=("all_reduce",), root="member")


def trial(number: int, purpose: Purpose, outcome: Outcome, *changed: Setting) -> Trial:
    kept = tuple(one.label for one in (GRAPHS, KEY) if one not in changed)
    return Trial(
        number=number, kept=kept, changed=tuple(one.label for one in changed), purpose=purpose, outcome=outcome,
        verdict="hung" if outcome is Outcome.SAME else "ready", seconds=12.5, run=f"run-{number}", until="decided",
        signature=HUNG if outcome is Outcome.SAME else None, caches={"Triton's cache": "warm"},
    )  # fmt: skip


FOUND = Isolation(
    name="20261129-181145-vllm-7f3a",
    command=("vllm", "serve", "/m", "--graphs", "--seed", "7"),
    settings=(GRAPHS, KEY),
    engine="vllm",
    engine_version="0.32.0",
    versions={"torch": "2.9.0"},
    state="found",
    reason="it fails with graphs (--graphs); changing graphs (--graphs) fixes it",
    minimal_failing=(GRAPHS,),
    minimal_fix=(GRAPHS,),
    verified=("the minimal failing configuration failed again", "the fix brought a real token"),
    trials=(trial(1, Purpose.BASELINE, Outcome.SAME), trial(2, Purpose.BAREST, Outcome.PASSES, GRAPHS, KEY)),
    posterior=((("graphs (--graphs)",), 0.96),),
    guilty=("graphs (--graphs)",),
    cleared=("VLLM_API_KEY=****",),
    launches_left=0.0,
    seconds=25.0,
    cost=0.68,
    reproduce="vllm serve /m --graphs",
    fixed="vllm serve /m --seed 7 --no-graphs",
    baseline={"verdict": "hung", "reason": "rank 1 is behind", "run": "run-1", "signature": {"sort": "blocked"}},
    folder="/state/isolations/20261129-181145-vllm-7f3a",
)


def test_the_document_has_every_key(snapshot: Any) -> None:
    assert isolation_document(FOUND) == snapshot


def test_the_text_fits_a_screen(snapshot: Any) -> None:
    assert isolation_text(FOUND) == snapshot


def test_the_markdown_can_be_pasted_into_an_issue(snapshot: Any) -> None:
    assert isolation_markdown(FOUND) == snapshot


def test_no_secret_is_told() -> None:
    assert "hunter2" not in str(isolation_document(FOUND)) + isolation_text(FOUND) + isolation_markdown(FOUND)


def test_the_line_before_each_launch_tells_what_is_known_and_what_it_will_cost() -> None:
    searching = Isolation(
        name="x", command=(), settings=(GRAPHS, KEY), guilty=("graphs (--graphs)",), open=("VLLM_API_KEY=****",), launches_left=3.2,
        seconds=25.0, trials=FOUND.trials,
    )  # fmt: skip
    assert progress_line(searching) == "guilty: graphs (--graphs); cleared: 0; open: 1; about 3 more launches, about 40 s"
