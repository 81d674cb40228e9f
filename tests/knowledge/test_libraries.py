"""All files of `knowledge/libraries`, and what their loader refuses."""

import pytest

from firsttoken.knowledge.libraries import libraries, parse
from firsttoken.knowledge.load import KnowledgeError, profiles
from firsttoken.model.gpu_code import Capability

_GPUS = [Capability.parse(text) for text in ("7.5", "8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")]


def test_every_library_tells_its_source_and_has_a_file_for_every_gpu() -> None:
    assert len({library.id for library in libraries()}) == len(libraries())
    for library in libraries():
        assert library.sources, library.id
        assert all(library.chosen(gpu) is not None for gpu in _GPUS), library.id
        assert library.used_on or library.used_with, library.id


def test_libraries_name_engines_that_there_are() -> None:
    for library in libraries():
        assert set(library.engines) <= set(profiles()), library.id


@pytest.mark.parametrize(
    ("command", "asked_for"),
    [
        ("python -m sglang.launch_server --attention-backend fa3 --tp 2", {"sgl-kernel FlashAttention 3"}),
        ("python -m sglang.launch_server --attention-backend=flashmla", {"sgl-flash-mla"}),
        ("python -m sglang.launch_server --attention-backend triton", set()),
        ("vllm serve m --quantization bitsandbytes", {"bitsandbytes"}),
        ("VLLM_ATTENTION_BACKEND=FLASHMLA vllm serve m", {"vllm FlashMLA"}),
        ("vllm serve m", set()),
    ],
)
def test_settings_that_ask_for_a_library_are_seen(command: str, asked_for: set[str]) -> None:
    assert {library.id for library in libraries() if library.asked_for(command)} == asked_for


_ROW = '[[library]]\nid = "x"\npackage = "x"\nwhat = "x"\nsources = []\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 2\nlibrary = []", "schema is 2"),
        ("schema = 1\nlibrary = []\nmore = 1", "`more` is no key"),
        (f"schema = 1\n{_ROW}choices = []\nused_in = []", "`used_in` is no key"),
        (f"schema = 1\n{_ROW}choices = [{{ files = [], at = 1 }}]", "`at` is no key"),
        (f"schema = 1\n{_ROW}choices = []\nused_on = ['sm_90']", "'sm_90' is no GPU"),
        (f"schema = 1\n{_ROW}choices = []\nused_with = ['(']", "is no regex"),
        (f"schema = 1\n{_ROW}", "choices"),
        ("schema =", "x.toml"),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_key(text: str, said: str) -> None:
    with pytest.raises(KnowledgeError, match=said.replace("(", r"\(")) as caught:
        parse(text.encode(), "x.toml")
    assert "x.toml" in str(caught.value)
