"""The shell around the search, with trials that are made up: ledger, budget, resuming, shortcuts, what a trial is taken for."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_trials import ABOUT, BEGUN, FAILED, HUNG, READY, Judge, Killed, World, graphs_hang

from firsttoken.model.isolation import Outcome, Purpose, Signature
from firsttoken.model.result import PhaseRow, Result
from firsttoken.model.words import Phase, Verdict
from firsttoken.report.isolation import isolation_document, isolation_markdown, isolation_text
from firsttoken.session.isolating import ledger as isolate_ledger
from firsttoken.session.isolating.ledger import Ledger
from firsttoken.session.isolating.trial import Ran
from firsttoken.session.launch import Asked


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path))
    for name in ("NCCL_DEBUG", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ledger() -> Ledger:
    made = isolate_ledger.create("rehearsal")
    made.begin(("masked",), ABOUT)
    return made


def test_the_answer_names_the_setting_the_fix_and_a_command_that_reproduces(tmp_path: Path, ledger: Ledger) -> None:
    world = World(tmp_path, graphs_hang)
    found = world.isolate(ledger)
    assert found.state == "found"
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
    assert len(world.launched) <= 6
    assert found.reproduce == "firsttoken rehearse --port 0 --graphs --api-key '****'"
    assert "--no-graphs" in (found.fixed or "")
    assert found.verified == ("the minimal failing configuration failed again", "the fix brought a real token")


def test_the_real_secret_is_launched_and_stands_in_no_file_and_no_answer(tmp_path: Path, ledger: Ledger) -> None:
    world = World(tmp_path, graphs_hang)
    found = world.isolate(ledger)
    assert all("secret-word-17" in argv for argv in world.launched)
    told = [json.dumps(isolation_document(found)), isolation_text(found), isolation_markdown(found)]
    assert not any("secret-word-17" in text for text in [*told, (ledger.folder / "ledger.jsonl").read_text()])


def test_a_search_that_was_killed_goes_on_and_repeats_no_trial(tmp_path: Path, ledger: Ledger) -> None:
    whole = World(tmp_path, graphs_hang)
    whole.isolate(ledger)
    for dies_at in range(1, len(whole.launched) + 1):
        again = isolate_ledger.create("rehearsal")
        again.begin(("masked",), ABOUT)
        first, second = World(tmp_path, graphs_hang, dies_at=dies_at), World(tmp_path, graphs_hang)
        with pytest.raises(Killed):
            first.isolate(again)
        found = second.isolate(Ledger.open(again.folder))
        assert found.minimal_failing is not None
        assert [*first.launched[:-1], *second.launched] == whole.launched


def test_only_the_same_command_with_the_same_wishes_is_gone_on_with(ledger: Ledger) -> None:
    assert isolate_ledger.unfinished(("masked",), ABOUT) is None, "somebody is at it"
    ledger.leave()
    found = isolate_ledger.unfinished(("masked",), ABOUT)
    assert found is not None
    assert found.name == ledger.name
    found.leave()
    assert isolate_ledger.unfinished(("masked", "--more"), ABOUT) is None
    assert isolate_ledger.unfinished(("masked",), {"cwd": "/elsewhere"}) is None
    ledger.end("found")
    assert isolate_ledger.unfinished(("masked",), ABOUT) is None


def test_a_torn_last_line_costs_that_line_only(ledger: Ledger) -> None:
    ledger.launch(BEGUN, "run-1")
    with (ledger.folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"kind": "trial", "trial": {"num')
    opened = Ledger.open(ledger.folder)
    assert [trial.run for trial in opened.unfinished.values()] == ["run-1"]
    opened.broke_off(1)
    assert Ledger.open(ledger.folder).broken == 1


def test_a_spent_budget_says_what_is_known_and_can_be_raised(tmp_path: Path, ledger: Ledger) -> None:
    world = World(tmp_path, graphs_hang)
    found = world.isolate(ledger, budget=3)
    assert (found.state, len(found.trials)) == ("out_of_budget", 3)
    assert found.posterior
    assert world.isolate(Ledger.open(ledger.folder), budget=10).state == "found"
    assert found.next == ("give the same command again with a higher --budget: it goes on from here",)
    assert "--max-time allows 4 s" in world.isolate(isolate_ledger.create("x"), max_time=4.0).reason
    dear = world.isolate(isolate_ledger.create("x"), price=3600.0, max_cost=5.0)
    assert "--max-cost allows 5" in dear.reason
    assert "--max-cost" in dear.next[0]


def test_a_search_whose_launches_are_all_cut_off_asks_for_more_time(tmp_path: Path, ledger: Ledger) -> None:
    cut = World(tmp_path, lambda _: Result(verdict=Verdict.STARTING, phase=Phase.CONFIG, reason=""), until="time")
    found = cut.isolate(ledger, trial_time=2.0)
    assert found.state == "not_reproduced"
    assert found.reason == "no launch was decided in its time: give them more (--trial-time)"


def test_a_setting_without_which_it_fails_in_another_way_is_not_called_needed(tmp_path: Path, ledger: Ledger) -> None:
    """Its removal is a usage error, say: nothing is known of it, and nothing about it was verified."""
    world = World(tmp_path, lambda argv: graphs_hang(argv) if "--shards" in argv else FAILED)
    found = world.isolate(ledger)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)", "--shards 2"]
    assert found.unjudged == ("--shards 2",)
    assert found.reason.startswith("it fails with graphs (--graphs); whether --shards 2 matters cannot be told")
    assert found.verified == ("the minimal failing configuration failed again", "the fix brought a real token")
    assert "--shards 2" in (found.fixed or "")


def test_a_trial_that_the_time_of_all_cut_off_is_launched_again(tmp_path: Path, ledger: Ledger) -> None:
    cut = World(tmp_path, lambda _: Result(verdict=Verdict.STARTING, phase=Phase.CONFIG, reason=""), until="time")
    for seconds in (2.0, 4.0, 6.0):
        found = cut.isolate(Ledger.open(ledger.folder), max_time=seconds)
        assert (found.state, found.trials[-1].until) == ("out_of_budget", "spent")
    found = World(tmp_path, graphs_hang).isolate(Ledger.open(ledger.folder))
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]


def test_trials_of_the_search_end_beyond_the_failing_phase_and_what_verifies_goes_to_the_end(tmp_path: Path, ledger: Ledger) -> None:
    world = World(tmp_path, graphs_hang)
    found = world.isolate(ledger)
    told = dict(zip([one.purpose for one in found.trials], world.beyond, strict=True))
    assert told[Purpose.BASELINE] is told[Purpose.FIX] is told[Purpose.FAILS_AGAIN] is None
    assert told[Purpose.BAREST] is Phase.GRAPH_CAPTURE


def test_another_failure_is_different_and_a_start_that_is_cut_off_is_unresolved(tmp_path: Path, ledger: Ledger) -> None:
    def judge(argv: tuple[str, ...]) -> Result:
        return graphs_hang(argv) if "--shards" in argv else FAILED

    found = World(tmp_path, judge).isolate(ledger)
    assert Outcome.DIFFERENT in [one.outcome for one in found.trials]
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)", "--shards 2"]
    assert [one.label for one in found.minimal_fix or ()] == ["graphs (--graphs)"]
    late = World(tmp_path, graphs_hang, until="time").isolate(isolate_ledger.create("x"))
    assert [one.outcome for one in late.trials] == [Outcome.UNRESOLVED] * 3


def test_a_shortcut_is_used_once_the_whole_command_failed_alike_with_it_and_the_end_is_real(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = PhaseRow(name=Phase.WEIGHTS, began_s=1.0, seconds=300.0, ranks_done=1)
    slow = Result(verdict=Verdict.HUNG, phase=Phase.GRAPH_CAPTURE, reason="", phases=(weights,))
    monkeypatch.setattr("firsttoken.session.isolating.isolate.Isolating._baseline_result", lambda _: slow)
    world = World(tmp_path, graphs_hang)
    found = world.isolate(ledger)
    cut = [one.purpose for one in found.trials if one.shortcut is not None]
    assert cut[0] is Purpose.SHORTCUT
    assert Purpose.NARROW in cut
    assert {Purpose.BASELINE, Purpose.FAILS_AGAIN, Purpose.FIX}.isdisjoint(cut)
    assert [("--shard-mb" in argv) for argv in world.launched] == [one.shortcut is not None for one in found.trials]


def test_a_shortcut_that_the_real_command_contradicts_is_forgotten(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small shards it is speculation that hangs; with real ones it takes graphs too."""

    def judge(argv: tuple[str, ...]) -> Result:
        hangs = "--speculative" in argv and ("--shard-mb" in argv or "--no-graphs" not in argv)
        return HUNG if hangs else READY

    weights = PhaseRow(name=Phase.WEIGHTS, began_s=1.0, seconds=300.0, ranks_done=1)
    slow = Result(verdict=Verdict.HUNG, phase=Phase.GRAPH_CAPTURE, reason="", phases=(weights,))
    monkeypatch.setattr("firsttoken.session.isolating.isolate.Isolating._baseline_result", lambda _: slow)
    found = World(tmp_path, judge).isolate(ledger)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)", "speculation (--speculative draft)"]


def test_a_disk_that_is_full_ends_the_search_with_what_is_known(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    world = World(tmp_path, graphs_hang)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "trial", full)
        found = world.isolate(ledger)
    assert (found.state, found.reason) == ("stopped", f"{ledger.folder}: No space left on device")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "end", full)
        assert world.isolate(ledger).state == "found", "the answer is told all the same"


def test_a_line_of_which_a_full_disk_took_a_part_is_an_error(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.write, iter((7,))

    def partly(fd: int, data: bytes) -> int:
        if (size := next(sizes, None)) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:size])

    monkeypatch.setattr(os, "write", partly)
    with pytest.raises(OSError, match="No space"):
        ledger.broke_off(1)
    assert ledger.broken == 0


def test_an_interruption_is_no_trial(tmp_path: Path, ledger: Ledger) -> None:
    found = World(tmp_path, graphs_hang, until="interrupted").isolate(ledger, budget=1)
    assert found.trials == ()
    assert Ledger.open(ledger.folder).broken == 1


class Lazy(World):
    """What stands where the baseline stood for a while only: whoever has patience sees it go on."""

    stands: Judge = staticmethod(lambda _: READY)

    async def run_trial(self, asked: Asked, *, alike: Signature | None, **more: Any) -> Ran:
        ran = await super().run_trial(asked, **more)
        return replace(ran, result=HUNG, until="alike") if alike is not None and self.stands(asked.argv) is HUNG else ran


def test_what_stood_like_the_baseline_for_a_while_is_not_taken_for_the_answer(tmp_path: Path, ledger: Ledger) -> None:
    """Graphs hang. Speculation lets a start stand for longer than one like the baseline is watched, and go on."""
    world = Lazy(tmp_path, graphs_hang)
    world.stands = lambda argv: HUNG if "--speculative" in argv or "--no-graphs" not in argv else READY
    found = world.isolate(ledger)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
    assert [one.label for one in found.minimal_fix or ()] == ["graphs (--graphs)"]
    real = [one for one in found.trials if one.purpose in (Purpose.BASELINE, Purpose.BAREST, Purpose.FAILS_AGAIN, Purpose.FIX)]
    assert "alike" not in {one.until for one in real}


def test_that_no_setting_is_at_fault_is_not_believed_of_a_start_that_only_stood_for_a_while(tmp_path: Path, ledger: Ledger) -> None:
    world = Lazy(tmp_path, graphs_hang)
    world.stands = lambda _: HUNG
    found = world.isolate(ledger)
    assert found.state == "found"
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]


def test_that_no_setting_is_at_fault_is_seen_without_a_shortcut(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small shards all hangs; really, graphs do."""
    weights = PhaseRow(name=Phase.WEIGHTS, began_s=1.0, seconds=300.0, ranks_done=1)
    slow = Result(verdict=Verdict.HUNG, phase=Phase.GRAPH_CAPTURE, reason="", phases=(weights,))
    monkeypatch.setattr("firsttoken.session.isolating.isolate.Isolating._baseline_result", lambda _: slow)
    found = World(tmp_path, lambda argv: HUNG if "--shard-mb" in argv else graphs_hang(argv)).isolate(ledger)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
