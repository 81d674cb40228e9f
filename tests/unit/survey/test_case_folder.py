"""A folder as attached to a bug report, any part of it missing."""

from pathlib import Path

from firsttoken.survey.case_folder import is_case, read_case


def test_missing_parts_are_none_and_not_empty(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"hello\n")
    case = read_case(tmp_path)
    assert is_case(tmp_path)
    assert case.log == b"hello\n"
    assert case.processes is None
    assert case.gpus is None
    assert case.probes is None
    assert case.stacks == ()


def test_a_stack_file_is_of_the_process_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "77.txt").write_text(
        'Traceback for thread 77 (x) [] (most recent call last):\n    (Python) File "a.py", line 1, in f\n'
    )
    (dump,) = read_case(tmp_path).stacks
    assert dump.pid == 77


def test_a_part_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "processes.txt").mkdir()
    assert "processes.txt" in read_case(tmp_path).unread[0]


def test_an_empty_folder_is_no_case(tmp_path: Path) -> None:
    assert not is_case(tmp_path)
