"""The loader: what is wrong in a data file is said in a sentence."""

import subprocess
import sys

import pytest

from firsttoken.knowledge.load import KnowledgeError, generic, parse, profile, profiles

GOOD = b'schema = 1\nname = "x"\n'


def test_profiles_are_read_once_and_have_distinct_hashes() -> None:
    assert profiles() is profiles()
    hashes = [p.hash for p in profiles().values()]
    assert len(set(hashes)) == len(hashes)
    assert all(len(h) == 12 for h in hashes)


def test_the_hash_names_the_content_and_what_it_is_read_with() -> None:
    assert parse(GOOD, "x.toml").hash == parse(GOOD, "x.toml").hash
    assert parse(GOOD, "x.toml").hash != parse(GOOD + b"\n", "x.toml").hash
    assert parse(GOOD, "x.toml").hash != parse(GOOD, "x.toml", b"common").hash


def test_an_unknown_engine_is_answered_with_those_there_are() -> None:
    assert profile("vllm") is profiles()["vllm"]
    with pytest.raises(KnowledgeError, match=r"no profile for an engine named 'nope'; there are .*vllm"):
        profile("nope")


def test_the_common_patterns_are_no_engine() -> None:
    assert generic().name not in profiles()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"schema = [", r"x\.toml is not TOML: "),
        (b"\xff", r"x\.toml is not TOML: "),
        (b'name = "x"', r"x\.toml: schema is None, this version reads 1"),
        (b"schema = 1", r"x\.toml: .*required field `name`, at the top"),
        (GOOD + b"colour = 3", r"x\.toml: `colour` is no key of the profile format"),
        (GOOD + b'hash = "1"', r"`hash` is computed"),
        (GOOD + b'[[option]]\nfield = "port"\ntype = "float"', r"x\.toml: Invalid enum value 'float', at options\[0\]\.type"),
        (GOOD + b'[[option]]\nfield = "port"\nflag = ["-p"]', r"x\.toml: `options\[0\]\.flag` is no key"),
        (
            GOOD + b'[[milestone]]\nid = "a"\nphase = "lunch"\nedge = "end"\npattern = ""',
            r"Invalid enum value 'lunch', at milestones\[0\]\.phase",
        ),
        (GOOD + b"[routes]\nhealthy = 1", r"`routes\.healthy` is no key"),
        (GOOD + b"[[timer]]\nname = \"t\"\nseconds = 1\nwhen = [{ fields = 'x' }]", r"`timers\[0\]\.when\[0\]\.fields` is no key"),
    ],
)
def test_errors_name_file_and_key(content: bytes, says: str) -> None:
    with pytest.raises(KnowledgeError, match=says):
        parse(content, "x.toml")


def test_loading_all_profiles_is_quick() -> None:
    code = (
        "import time\nfrom firsttoken.knowledge.load import generic, profiles\n"
        "t = time.process_time()\nprofiles(), generic()\nprint(time.process_time() - t)"
    )
    took = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout) for _ in range(3))
    assert took < 0.05 * 3, "three times the aim, for slow machines"
