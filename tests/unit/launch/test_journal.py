"""What is written of a server that runs for weeks."""

import json
from pathlib import Path

import pytest

from firsttoken.launch import journal
from firsttoken.launch.folder import Folder
from firsttoken.launch.journal import Journal


def test_a_long_record_goes_without_its_counters_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "EVENTS_BYTES", 2000)
    folder = Folder(tmp_path)
    folder.prepare()
    kept = Journal(folder, "node", lambda: None)
    kept.record()
    for number in range(100):
        kept.emit({"kind": "counters", "samples": [number]})
        kept.emit({"kind": "judged", "number": number})
    assert kept.close(10.0)
    written = [json.loads(line) for line in folder.events.read_text().splitlines()]
    told = [event["seq"] for event in written]
    assert told == sorted(set(told))
    assert [event["number"] for event in written if event["kind"] == "judged"] == list(range(100))
    assert 0 < sum(event["kind"] == "counters" for event in written) < 30
    assert [event["what"] for event in written if event["kind"] == "gap"] == ["events"]
    assert kept.events.next == 202  # clients get all of them
