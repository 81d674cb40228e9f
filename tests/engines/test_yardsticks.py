"""The tests' own instruments, without an engine: installer, models, the family watch and the reading of logs."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from . import figures, install, models
from .family import Family

VLLM_LOG = """\
\x1b[0;36m(APIServer pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-29 20:30:57\x1b[0m [api_utils.py:286] non-default args: {}\r
(Worker_TP0 pid=7) INFO 11-29 20:31:21 [parallel_state.py:1906] world_size=2 rank=0 local_rank=0 backend=gloo
(Worker_TP1 pid=8) INFO 11-29 20:31:23 [parallel_state.py:1906] world_size=2 rank=1 local_rank=1 backend=gloo
(Worker_TP0 pid=7) INFO 11-29 20:31:24 [default_loader.py:501] Loading weights took 1.25 seconds
no stamp at all
"""


def test_a_span_lasts_from_the_first_begin_to_the_last_end() -> None:
    log = figures.lines(VLLM_LOG, 2026)
    assert figures.span(log, *figures.VLLM["config"]) == 26.0
    assert figures.numbers(log, figures.VLLM_WEIGHTS) == (1.25,)
    assert [line.at is None for line in log] == [False, False, False, False, True]


def test_a_span_whose_end_is_missing_is_unknown() -> None:
    assert figures.span(figures.lines(VLLM_LOG, 2026), *figures.VLLM["compile"]) is None


def test_a_family_is_known_by_home_mark_and_birth_and_only_the_living_are_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "runs" / "some-run").mkdir(parents=True)
    orphan = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid, flush=True); sys.stdin.read()"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTTOKEN_")}
    with (
        Family(home) as family,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=clean) as stranger,
        subprocess.Popen(
            [sys.executable, "-c", orphan], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**clean, "FIRSTTOKEN_RUN": "some-run"}
        ) as parent,
    ):
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert {member.pid for member in family.left()} == {parent.pid, child}
        parent.communicate()
        assert {member.pid for member in family.left()} == {child}, "orphaned, and with a parent that no longer tells"
        family.end()
        assert family.left_after(10) == {}
        stranger.communicate(b"\n")
        assert stranger.returncode == 0


def test_pins_are_read_without_comments_and_by_normal_names(tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("# all of it\nJinja2==3.1.6\ntyping_extensions==4.16.0  # old\nuvicorn[standard]==0.54.0\n")
    assert install.pinned(pins) == {"jinja2": "3.1.6", "typing-extensions": "4.16.0", "uvicorn": "0.54.0"}


@pytest.mark.parametrize("name", install.ENVIRONMENTS)
def test_every_environment_pins_what_it_must_answer_with(name: str) -> None:
    environment = install.ENVIRONMENTS[name]
    assert environment.version.split("+")[0] in install.pinned(environment.pins).values()


def test_only_a_stamp_of_the_same_pins_makes_an_environment_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "ROOT", tmp_path)
    pins = tmp_path / "pins.txt"
    pins.write_text("some==1\n")
    environment = install.Environment(name="some", pins=pins, answer=("python",), version="1")
    (environment.folder / "bin").mkdir(parents=True)
    (environment.folder / "bin" / "python").symlink_to(sys.executable)
    assert not install.stamped(environment)
    (environment.folder / install.STAMP).write_text(json.dumps({"made_from": environment.digest()}))
    assert install.stamped(environment)
    pins.write_text("# a comment changes nothing\nsome==1\n")
    assert install.stamped(environment)
    pins.write_text("some==2\n")
    assert not install.stamped(environment)


def test_a_model_is_whole_only_where_its_weights_are_as_long_as_their_header_says(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    assert not models.whole(tmp_path)
    weights.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    assert models.whole(tmp_path)
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not models.whole(tmp_path)


def test_a_model_that_nobody_can_make_is_refused_by_name(tmp_path: Path) -> None:
    assert models.missing(tmp_path, ("llama8_noisy-0.02",)) == ["llama8_noisy-0.02"]
    with pytest.raises(ValueError, match="no model is called qwen9"):
        models.missing(tmp_path, ("qwen9",))
