"""Checks for people and for scripts: the texts are a contract."""

from syrupy.assertion import SnapshotAssertion

from firsttoken.model.checks import CheckReport, MemoryNeeds, Part, exit_status, fail, passed, skipped, warn
from firsttoken.report.checks import check_line, checks_document, checks_text, verdict

REPORT = CheckReport(
    command=("vllm", "serve", "m\x1b[31m", "-tp", "4"),
    engine="vllm",
    model="m",
    checks=(
        passed(Part.WEIGHTS, "weights-corrupt", "64 files whole, 131.4 GiB"),
        fail(
            Part.WEIGHTS,
            "tp-not-divisible",
            "6 attention heads do not divide by 4",
            "another size",
            "every rank ends while it builds the model",
        ),
        warn(
            Part.MACHINE, "shm-too-small", "/dev/shm has 64 MiB", "docker run --shm-size=16g (or --ipc=host)", "a rank may end with SIGBUS"
        ),
        skipped(Part.MEMORY, "gpu-oom", "no GPU is visible here"),
    ),
    memory=MemoryNeeds(
        weights_by_rank=(10 << 30, 11 << 30),
        draft=1 << 30,
        kv_per_token=81920.0,
        kv_per_sequence=float(5 << 20),
        context=131072,
        kv_of_context=81920.0 * 131072,
        room=float(30 << 30),
        longest=393_216,
        concurrency=3.0,
    ),
    seconds=0.25,
)


def test_the_text_has_the_worst_first_in_each_part(snapshot: SnapshotAssertion) -> None:
    assert checks_text(REPORT) == snapshot


def test_the_document_has_every_key(snapshot: SnapshotAssertion) -> None:
    assert checks_document(REPORT) == snapshot


def test_one_line_tells_a_start_what_will_end_it() -> None:
    assert check_line(REPORT.checks[1]) == "check fail tp-not-divisible: 6 attention heads do not divide by 4 → another size"


def test_the_status_is_that_of_the_worst() -> None:
    assert exit_status(REPORT.checks) == 78
    assert exit_status(REPORT.checks[2:]) == 1
    assert exit_status((REPORT.checks[0], REPORT.checks[3])) == 0
    assert verdict(()) == "nothing could be checked (0 fail, 0 warn, 0 pass, 0 not checked)"
    assert verdict((passed(Part.MACHINE, "x", ""),)) == "nothing is in the way (0 fail, 0 warn, 1 pass, 0 not checked)"
