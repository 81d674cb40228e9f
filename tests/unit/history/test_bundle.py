"""A bundle holds what the run holds, without its secrets, and every offset stays true."""

import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import hung, record, served

from firsttoken.history.archive import unpack
from firsttoken.history.bundle import write_bundle
from firsttoken.history.masked_log import masked_log, raw_log, secret_ranges, shape_of
from firsttoken.history.runs import RunFolder
from firsttoken.model.events import Missed, SecretsInLog
from firsttoken.model.redact import secrets_in_text
from firsttoken.model.secrets import Secrets
from firsttoken.session.replay import replay

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def packed(run: RunFolder, *known: str) -> dict[str, bytes]:
    out = io.BytesIO()
    write_bundle(run, out, Secrets(known), version="1", now=NOW)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.split("/", 1)[1]: file.read() for name, file in files.items() if file is not None}


def test_planted_secrets_are_nowhere_in_a_bundle(tmp_path: Path) -> None:
    log = (
        b"args: {'api_key': ['s3cret-one']}\nmodel s3cret-one served, X=s3cret-two\n"
        b"user:s3cret-three@ and hf_" + b"a1" * 10 + b"\nthe last line\n"
    )
    at = log.index(b"s3cret-two")
    story = hung("engine s3cret-one ").tell(SecretsInLog(ranges=((at, 10),)), Missed(request="s3cret-one", reason="k s3cret-three"))
    run = record(tmp_path / "run", story, log, environment={"HF_TOKEN": "s3cret-three", "X": "s3cret-one"})
    files = packed(run, "s3cret-three")
    everything = b"".join(files.values())
    assert b"s3cret" not in everything
    assert b"hf_a1" not in everything
    masked = files["log/head.raw"]
    assert len(masked) == len(log)
    assert masked.endswith(b"the last line\n")
    assert masked[at : at + 10] == b"*" * 10
    assert masked.splitlines()[0] == b"args: {'api_key': ['**********']}"


def test_a_manifest_tells_what_is_in_it(tmp_path: Path) -> None:
    run = record(tmp_path / "20261129-181145-engine-7f3a", served(), b"one\ntwo\n")
    files = packed(run)
    manifest = json.loads(files["manifest.json"])
    assert (manifest["schema"], manifest["kind"], manifest["run"], manifest["redacted"]) == ("firsttoken/1", "bundle", run.name, True)
    assert {row["name"]: row["bytes"] for row in manifest["files"]} == {n: len(d) for n, d in files.items() if n != "manifest.json"}
    assert manifest["log"] == [{"name": "head.raw", "offset": 0, "bytes": 8}]
    assert set(files) == {"manifest.json", "events.jsonl", "spec.json", "result.json", "log/index", "log/head.raw"}


def test_an_unpacked_bundle_is_judged_as_the_run(tmp_path: Path) -> None:
    for name, story in (("hung", hung()), ("served", served())):
        run = record(tmp_path / name, story, b"X\n" * 500)
        with (tmp_path / f"{name}.tar.gz").open("wb") as out:
            write_bundle(run, out, Secrets(), version="1", now=NOW)
        (tmp_path / f"{name}.into").mkdir()
        again = RunFolder(unpack(tmp_path / f"{name}.tar.gz", tmp_path / f"{name}.into").folder)
        assert replay(again.events()).changes == replay(run.events()).changes
        assert list(again.log()) == list(run.log())


def test_a_torn_last_line_of_events_is_left_out(tmp_path: Path) -> None:
    run = record(tmp_path / "run", served())
    with run.events_file.open("ab") as file:
        file.write(b'{"seq": 99, "t": 1')
    assert len(packed(run)["events.jsonl"].splitlines()) == len(list(run.events()))


def test_a_secret_across_two_files_of_the_log_is_masked_in_both(tmp_path: Path) -> None:
    run = record(tmp_path / "run", served(), b"start api_key='abc-")
    (run.path / "log" / f"tail-{19:020}.raw").write_bytes(b"def-123' end")
    parts, secrets = masked_log(run, (), Secrets())
    assert b"".join(part.data for part in parts) == b"start api_key='***********' end"
    assert secrets.values == ("abc-def-123",)


def test_a_hole_in_the_log_is_no_place_where_lines_meet(tmp_path: Path) -> None:
    run = record(tmp_path / "run", served(), b"start api_key='abc-")
    (run.path / "log" / f"tail-{500:020}.raw").write_bytes(b"def-123' end")
    parts, _ = masked_log(run, ((498, 5),), Secrets())
    assert [(part.offset, part.data) for part in parts] == [(0, b"start api_key='****"), (500, b"***-123' end")]


def test_a_private_key_in_the_log_is_masked_to_its_end(tmp_path: Path) -> None:
    lines = b"-----BEGIN PRIVATE KEY-----\n" + b"MIIEpAIBAAKCAQEA7bq0\n" * 20 + b"-----END PRIVATE KEY-----\nafter\n"
    run = record(tmp_path / "run", served(), b"x" * ((1 << 20) - 40) + b"\n" + lines)
    parts, _ = masked_log(run, (), Secrets())
    assert b"MIIEpAIB" not in parts[0].data
    assert parts[0].data.endswith(b"after\n")


def test_the_log_for_this_machine_lacks_only_what_was_known_by_value(tmp_path: Path) -> None:
    story = served().tell(SecretsInLog(ranges=((2, 3),)))
    run = record(tmp_path / "run", story, b"a abc b api_key='xyz12345'")
    assert secret_ranges(run.events()) == ((2, 3),)
    assert raw_log(run, secret_ranges(run.events()))[0].data == b"a *** b api_key='xyz12345'"


@given(st.text(alphabet="k8eytohfhf_api_skAKIA-=: '\"[]@/.,0123456789", max_size=80))
def test_which_digits_a_line_has_does_not_matter_to_masking(text: str) -> None:
    alike = shape_of(text.encode()).decode()
    assert [len(part) for part in secrets_in_text(text)] == [len(part) for part in secrets_in_text(alike)]


def test_equal_lines_are_masked_like_the_first(tmp_path: Path) -> None:
    log = b"".join(b"step %d token usage: 0.%d\nx api_key='k%d'\n" % (number, number, number) for number in range(300))
    run = record(tmp_path / "run", served(), log)
    (part,), _ = masked_log(run, (), Secrets())
    assert len(part.data) == len(log)
    assert part.data.count(b"token usage: 0.") == 300
    assert b"'k" not in part.data
