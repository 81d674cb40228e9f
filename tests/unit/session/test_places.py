"""Where trials run at once: places, what a trial is moved by, and the shell with several of them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made_up_trials import ABOUT, COMMAND, FAILED, READY, Killed, World, graphs_hang

from firsttoken.isolate.edit import edited
from firsttoken.isolate.settings import Wishes
from firsttoken.model.isolation import Isolation, Outcome, Purpose
from firsttoken.model.plan import Endpoint
from firsttoken.model.result import Result
from firsttoken.session.isolating import ledger as isolate_ledger
from firsttoken.session.isolating.command import Read, read
from firsttoken.session.isolating.isolate import Isolating
from firsttoken.session.isolating.ledger import Ledger
from firsttoken.session.isolating.options import Options
from firsttoken.session.isolating.places import NoPlaces, Place, free_ports, places
from firsttoken.survey.gpus import Gpu, Gpus

VLLM = ("vllm", "serve", "m", "-tp", "2", "--enforce-eager")
EIGHT = Gpus(found=tuple(Gpu(index=at, uuid=f"GPU-{at:032x}") for at in range(8)))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "VLLM_PORT", "MASTER_PORT", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


def asked(*argv: str) -> Read:
    return read(argv, Wishes(), gpus=True)


def test_eight_gpus_hold_four_trials_of_two_ranks_each_on_its_own() -> None:
    found = places(asked(*VLLM), 4, EIGHT)
    assert [place.gpus for place in found] == [(), ("2", "3"), ("4", "5"), ("6", "7")]
    with pytest.raises(NoPlaces, match="takes 2 of the 8 GPUs that can be seen: --parallel 4 is the most"):
        places(asked(*VLLM), 5, EIGHT)


def test_only_gpus_that_the_command_would_see_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [place.gpus for place in places(asked(*VLLM), 2, EIGHT)] == [(), ("6", "7")]
    assert [place.gpus for place in places(asked("env", "CUDA_VISIBLE_DEVICES=0,3,5,1", *VLLM), 2, EIGHT)] == [(), ("5", "1")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{EIGHT.found[1].uuid},{EIGHT.found[0].uuid}")
    with pytest.raises(NoPlaces, match="no two fit beside each other"):
        places(asked(*VLLM), 2, EIGHT)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("docker", "run", "vllm/vllm-openai", "--model", "m"), "a port and GPUs of its own: "),
        ((*VLLM, "--nnodes", "2", "--master-addr", "10.0.0.1"), "--nnodes, --master-addr ties"),
        (("env", "VLLM_PORT=29500", *VLLM), "VLLM_PORT ties"),
        (("python", "-m", "sglang.launch_server", "--model-path", "m", "--base-gpu-id", "4"), "--base-gpu-id ties"),
        ((*VLLM, "--uds", "/tmp/s"), "cannot be changed by a flag"),
        (("sudo", *VLLM), "keeps CUDA_VISIBLE_DEVICES from"),
        (("bash", "-c", "vllm serve m"), "can be given a port and GPUs of its own: the engine is started by a script"),
    ],
)
def test_a_command_that_cannot_run_twice_at_once_says_why(argv: Sequence[str], why: str) -> None:
    with pytest.raises(NoPlaces, match=why):
        places(asked(*argv), 2, EIGHT)


def test_gpus_that_nvidia_smi_does_not_name_are_not_guessed() -> None:
    with pytest.raises(NoPlaces, match="it hangs"):
        places(asked(*VLLM), 2, Gpus(devices=8, problem="it hangs"))
    assert [place.gpus for place in places(asked(*VLLM), 3, Gpus())] == [(), (), ()]


def test_a_trial_elsewhere_gets_its_gpus_and_its_port_and_is_otherwise_the_same() -> None:
    found = asked("env", "CUDA_VISIBLE_DEVICES=0,1,2,3", *VLLM, "--port", "8001")
    isolating = Isolating(read=found, options=Options(), ledger=Ledger(Path("/nowhere")))
    full = (1 << len(found.settings)) - 1
    elsewhere = isolating.command(full, None, Place(number=1, gpus=("2", "3")).moved(found, 9123))
    assert elsewhere == ("env", "CUDA_VISIBLE_DEVICES=2,3", *VLLM, "--port", "9123")
    assert isolating.command(full, None, Place().moved(found, 9123)) == found.command.argv


@pytest.mark.parametrize("ahead", [("env", "-i", "PATH=/bin"), ("env", "-u", "CUDA_VISIBLE_DEVICES"), ("numactl", "-N", "0")])
def test_whatever_stands_in_front_the_gpus_reach_the_server(ahead: Sequence[str]) -> None:
    found = asked(*ahead, *VLLM, "--", "more")
    place = places(found, 4, EIGHT)[1]
    assert edited(found.command, place.moved(found, 9123)) == (
        *ahead, "env", "CUDA_VISIBLE_DEVICES=2,3", *VLLM, "--port", "9123", "--", "more",
    )  # fmt: skip


def test_ports_are_free_and_differ() -> None:
    own = free_ports([Place()], Endpoint(port=None))[0]
    found = free_ports([Place()] * 8, Endpoint(port=own))
    assert len({*found, own}) == 9


def isolate(world: World, ledger: Ledger, count: int, **options: Any) -> Isolation:
    found = read(COMMAND, Wishes(), gpus=False)
    isolating = Isolating(
        read=found,
        options=Options(**options),
        ledger=ledger,
        places=tuple(Place(number=at) for at in range(count)),
    )
    isolating.run_trial = world.run_trial
    return asyncio.run(isolating.run())


def _begun() -> Ledger:
    made = isolate_ledger.create("rehearsal")
    made.begin(("masked",), ABOUT)
    return made


def test_each_place_shows_the_failure_before_its_trials_count_and_what_verifies_runs_at_home(tmp_path: Path) -> None:
    found = isolate(World(tmp_path, graphs_hang), _begun(), 4)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
    assert [(one.purpose, one.place) for one in found.trials[:4]] == [(Purpose.BASELINE, 0), *((Purpose.PLACE, at) for at in (1, 2, 3))]
    verifying = [one for one in found.trials if one.purpose in (Purpose.FAILS_AGAIN, Purpose.FIX)]
    assert {one.place for one in verifying} == {0}
    assert found.seconds < 2.0 * len(found.trials), "what ran at once counts once"
    assert [one.number for one in sorted(found.trials, key=lambda one: one.number)] == list(range(1, len(found.trials) + 1))


def test_a_fix_that_passed_elsewhere_is_launched_at_home_too(tmp_path: Path) -> None:
    for count in range(1, 6):
        found = isolate(World(tmp_path, graphs_hang), _begun(), count)
        fix = [one.changed for one in found.trials if not one.place and one.outcome is Outcome.PASSES]
        assert ("graphs (--graphs)",) in fix
        assert "the fix brought a real token" in found.verified


def test_a_place_that_failed_before_home_did_and_otherwise_is_left_alone(tmp_path: Path) -> None:
    """At first the command passes at home while a place fails for reasons of its own."""
    world = World(tmp_path, lambda argv: READY if len(world.launched) == 1 else FAILED if len(world.launched) == 2 else graphs_hang(argv))
    found = isolate(world, _begun(), 2)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
    assert [one.place for one in found.trials].count(1) == 1


def test_a_place_where_it_does_not_fail_is_left_alone(tmp_path: Path) -> None:
    """The failure belongs to the GPUs of home and of place 2."""

    def judge(argv: tuple[str, ...]) -> Result:
        return READY if argv[argv.index("--port") + 1] == "1001" else graphs_hang(argv)

    found_at = read(tuple(word if word != "0" else "1000" for word in COMMAND), Wishes(), gpus=False)
    world = World(tmp_path, judge)
    isolating = Isolating(read=found_at, options=Options(), ledger=_begun(), places=tuple(Place(number=at) for at in range(3)))
    isolating.run_trial = world.run_trial
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("firsttoken.session.isolating.isolate.free_ports", lambda many, _: [1000 + at.number for at in many])
        patched.setattr("firsttoken.session.isolating.guard.port_taken", lambda _: None)
        found = asyncio.run(isolating.run())
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
    assert [(one.place, one.outcome) for one in found.trials if one.purpose is Purpose.PLACE] == [
        (1, Outcome.PASSES),
        (2, Outcome.SAME),
    ]
    assert 1 not in {one.place for one in found.trials if one.purpose is not Purpose.PLACE}
    assert 2 in {one.place for one in found.trials if one.purpose is not Purpose.PLACE}


def test_of_a_failure_that_comes_and_goes_one_pass_rules_no_place_out(tmp_path: Path) -> None:
    world = World(tmp_path, lambda argv: READY if len(world.launched) == 2 else graphs_hang(argv))
    found = isolate(world, _begun(), 2, intermittent=True, budget=100)
    assert [one.label for one in found.minimal_failing or ()] == ["graphs (--graphs)"]
    assert [one.outcome for one in found.trials if one.purpose is Purpose.PLACE] == [Outcome.PASSES, Outcome.SAME]


def test_killed_with_several_at_once_it_goes_on_and_ends_alike(tmp_path: Path) -> None:
    whole = isolate(World(tmp_path, graphs_hang), _begun(), 3)
    for dies_at in range(1, len(whole.trials) + 1):
        ledger = _begun()
        with pytest.raises(Killed):
            isolate(World(tmp_path, graphs_hang, dies_at=dies_at), ledger, 3)
        again = Ledger.open(ledger.folder)
        found = isolate(World(tmp_path, graphs_hang), again, 3)
        assert found.minimal_failing == whole.minimal_failing
        assert not again.unfinished


def test_the_budget_holds_for_launches_at_once(tmp_path: Path) -> None:
    found = isolate(World(tmp_path, graphs_hang), _begun(), 4, budget=6)
    assert (found.state, len(found.trials)) == ("out_of_budget", 6)
