"""What people and programs read about speculation: a change here is a change of the contract."""

import json
from dataclasses import replace

from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from firsttoken.model.result import Result
from firsttoken.model.speculation import (
    Acceptance,
    Answer,
    Costs,
    Figures,
    Kind,
    Level,
    Measured,
    Opinion,
    Outputs,
    Parted,
    Parting,
    Ratio,
    Sampling,
    Tried,
)
from firsttoken.model.words import Verdict
from firsttoken.report.document import to_json
from firsttoken.report.speculation import earlier, speculation_document, speculation_text

BASELINE = Figures(requests=16, tokens=1024, tokens_per_s=101.9, tokens_per_s_user=121.2, first_token_s=0.095, inter_token_s=0.00825)
SPECULATIVE = replace(BASELINE, tokens_per_s=67.4, tokens_per_s_user=80.1, first_token_s=0.1, inter_token_s=0.0125)
LEVEL = Level(
    concurrency=1,
    speedup=Ratio(value=0.66, low=0.64, high=0.68, blocks=8),
    pays=False,
    end_to_end=Ratio(value=0.69, low=0.67, high=0.71, blocks=8),
    greedy=Kind(speedup=Ratio(value=0.67, low=0.63, high=0.7, blocks=8), acceptance=0.16),
    sampled=Kind(speedup=Ratio(value=0.65, low=0.6, high=0.69, blocks=8)),
    baseline=BASELINE,
    speculative=SPECULATIVE,
    acceptance=Acceptance(
        source="the engine's counters",
        rate=0.15,
        length=1.45,
        by_position=(0.32, 0.1, 0.03),
        drafts=697,
        drafted=2091,
        accepted=317,
        by_requests=0.155,
        requests=16,
    ),
    costs=Costs(step_s=0.00825, round_s=0.018, drafted=3.0, draft_s=0.00325, break_even=0.394),
)
ANSWER = Answer(
    opinion=Opinion(pays=False, cause="acceptance-too-low", reason="it makes generation slower", suggestion="turn it off"),
    code=0,
    engine="engine",
    command=("engine", "serve", "m", "--speculate"),
    baseline_command=("engine", "serve", "m"),
    levels=(LEVEL, replace(LEVEL, concurrency=4, acceptance=Acceptance(source="nothing that the engine tells"), costs=None)),
    outputs=Outputs(
        compared=8,
        agree=7,
        parted=(Parted(prompt="chat 1", concurrency=1, at_token=12, baseline="a", speculative="b", why=Parting.TIE, margin=0.02),),
    ),
    tried=(
        Tried(draft_tokens=1, ratio=Ratio(value=0.95, low=0.9, high=1.0, blocks=8), acceptance=0.32, run="run-c"),
        Tried(draft_tokens=8, ratio=None, note="crashed: out of memory"),
    ),
    measured=Measured(
        arrangement="interleaved",
        why="neither uses a GPU",
        prompts="24 that come with firsttoken",
        route="/v1/chat/completions",
        output_tokens=64,
        samplings=(Sampling.GREEDY, Sampling.SAMPLED),
        temperature=0.8,
        draft_tokens=3,
    ),
    runs={"baseline": "run-a", "speculative": "run-b"},
    results={"baseline": None, "speculative": None},
    not_checked=("something",),
    seconds=39.2,
)
FAILED = Answer(
    opinion=Opinion(pays=None, cause="does-not-serve", reason="with speculation it does not serve", suggestion="turn it off"),
    code=69,
    results={
        "baseline": None,
        "speculative": Result(
            run="run-b",
            verdict=Verdict.CRASHED,
            reason="rank 0 died",
            findings=({"cause": "spec-crash", "confidence": 0.9, "summary": "a crash", "evidence": ["line 1"], "remedy": "turn it off"},),
        ),
    },
)


def test_the_text_of_an_answer(snapshot: SnapshotAssertion) -> None:
    assert speculation_text(ANSWER) == snapshot
    assert speculation_text(FAILED) == snapshot


def test_the_document_of_an_answer(snapshot: SnapshotAssertion) -> None:
    told = json.loads(to_json(speculation_document(ANSWER, "2026-11-29T18:11:45Z")))
    assert told == snapshot(extension_class=JSONSnapshotExtension)


def test_a_document_without_numbers_has_the_same_keys() -> None:
    assert set(speculation_document(FAILED, "now")) == set(speculation_document(ANSWER, "now"))


def test_an_earlier_answer_is_held_against_this_one() -> None:
    before = {"at": "2026-11-22T10:00:00Z", "speedup": 1.2, "interval": [1.1, 1.3], "acceptance": 0.6}
    found = earlier(before, LEVEL)
    assert found is not None
    assert found.text == "2026-11-22T10:00:00Z: 1.20 times as fast, 60 % accepted; now it is slower than then"
    alike = earlier({**before, "interval": [0.5, 1.3], "acceptance": None}, LEVEL)
    assert alike is not None
    assert alike.text.endswith("no different from then")
    assert earlier({"speedup": "x"}, LEVEL) is None
