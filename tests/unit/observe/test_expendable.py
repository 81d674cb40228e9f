"""Programs that are run with a deadline and may be left behind."""

import asyncio
import os
import sys
import time

from firsttoken.observe.expendable import Expendable


async def run(*arguments: str, seconds: float = 20.0) -> tuple[bytes, str | None]:
    outcome = await Expendable().run((sys.executable, "-I", "-c", *arguments), seconds)
    return outcome.output, outcome.error


def test_output_of_any_size_comes_back_whole() -> None:
    output, error = asyncio.run(run("print('x' * 3_000_000)"))
    assert (len(output), error) == (3_000_001, None)


def test_a_program_that_fails_is_told_in_its_own_words_without_its_backtrace() -> None:
    _, error = asyncio.run(
        run("import sys; sys.exit('Error: no such thing\\n\\nCaused by:\\n    0: Permission denied\\n\\nStack backtrace:\\n 0: x')")
    )
    assert error is not None
    assert error.endswith("ended with status 1: no such thing; Permission denied")


def test_a_program_that_does_not_end_is_killed_at_its_deadline() -> None:
    began = time.monotonic()
    children = Expendable()
    outcome = asyncio.run(children.run((sys.executable, "-I", "-c", "import signal; signal.pause()"), 0.3))
    assert outcome.error is not None
    assert "no answer within 0.3 s" in outcome.error
    assert not outcome.left_behind
    assert children.left_behind == ()
    assert time.monotonic() - began < 10


def test_an_answer_of_one_line_counts_when_it_is_there_whether_its_program_can_end_or_not() -> None:
    children = Expendable()
    answering = "import signal, sys; print('so', flush=True); signal.pause()"
    outcome = asyncio.run(children.run((sys.executable, "-I", "-c", answering), 20.0, line=True))
    assert (outcome.output, outcome.error, outcome.late) == (b"so\n", None, False)
    silent = asyncio.run(children.run((sys.executable, "-I", "-c", "import signal; signal.pause()"), 0.5, line=True))
    assert silent.late
    ended = asyncio.run(children.run((sys.executable, "-I", "-c", "print('so')"), 20.0, line=True))
    assert ended.output == b"so\n"


def test_one_may_be_run_from_within_an_event_loop() -> None:
    async def within() -> bytes:
        return Expendable().run_blocking((sys.executable, "-I", "-c", "print('so')"), 20.0).output

    assert asyncio.run(within()) == b"so\n"


def test_children_stay_in_our_session_and_out_of_our_process_group() -> None:
    told = Expendable().run_blocking((sys.executable, "-I", "-c", "import os; print(os.getsid(0), os.getpgrp() == os.getpid())"), 20.0)
    assert told.output.split() == [str(os.getsid(0)).encode(), b"True"]


def test_a_program_that_is_not_there_is_said_to_be_missing() -> None:
    outcome = asyncio.run(Expendable().run(("/nowhere/py-spy", "dump"), 1.0))
    assert outcome.error == "/nowhere/py-spy cannot be run: No such file or directory"
