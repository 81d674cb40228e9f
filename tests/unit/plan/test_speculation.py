"""From a command with speculation to the same without it: only that goes, and what cannot go is refused."""

import shlex

import pytest

from firsttoken.knowledge.load import profiles
from firsttoken.plan.speculation import NotSpeculating, Speculating, speculating
from firsttoken.plan.world import World

COMMANDS = [
    (
        """env A=b vllm serve /m --port 8001 --speculative-config '{"method":"ngram","num_speculative_tokens":3}' --enforce-eager""",
        "env A=b vllm serve /m --port 8001 --enforce-eager",
        3,
        True,
    ),
    (
        "vllm serve /m --speculative_config.method=eagle3 --speculative-config.num_speculative_tokens 4 -tp 2",
        "vllm serve /m -tp 2",
        4,
        False,
    ),
    ("vllm serve /m --spec-method ngram --spec-tokens=5 --specialize-active-lora", "vllm serve /m --specialize-active-lora", 5, True),
    (
        "python -m sglang.launch_server --model-path x --speculative-algorithm EAGLE3 --speculative-draft-model-path y "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-adaptive --tp 2",
        "python -m sglang.launch_server --model-path x --tp 2",
        3,
        False,
    ),
    ("llama-server -m x.gguf -md y.gguf --draft-max 8 -ngl 99 -ngld 99", "llama-server -m x.gguf -ngl 99", 8, False),
    ("firsttoken rehearse --speculative draft --draft-quality .15 --port 0", "firsttoken rehearse --port 0", None, False),
]


def read(command: str, env: dict[str, str] | None = None, files: dict[str, str] | None = None) -> Speculating:
    world = World(env=env or {}, cwd="/w", read_text=lambda path: (files or {}).get(path))
    return speculating(shlex.split(command), world, profiles())


@pytest.mark.parametrize(("command", "baseline", "draft_tokens", "copies"), COMMANDS)
def test_speculation_goes_and_all_else_stays(command: str, baseline: str, draft_tokens: int | None, copies: bool) -> None:
    found = read(command)
    assert found.argv == tuple(shlex.split(command))
    assert found.baseline == tuple(shlex.split(baseline))
    assert (found.draft_tokens, found.copies) == (draft_tokens, copies)


@pytest.mark.parametrize("command", [row[0] for row in COMMANDS])
def test_another_number_of_draft_tokens_is_read_back(command: str) -> None:
    changed = read(command).with_draft_tokens(7)
    assert changed is not None
    assert read(shlex.join(changed.argv)).draft_tokens == 7
    assert changed.baseline == read(command).baseline


def test_every_flag_that_sets_the_number_follows() -> None:
    changed = read(COMMANDS[3][0]).with_draft_tokens(5)
    assert changed is not None
    words = shlex.join(changed.argv)
    assert "--speculative-num-steps 5" in words
    assert "--speculative-num-draft-tokens 6" in words


def test_the_baseline_moves_to_another_port() -> None:
    found = read(COMMANDS[0][0])
    assert shlex.join(found.on_port(found.baseline, 77)) == "env A=b vllm serve /m --enforce-eager --port 77"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("vllm serve /m", "without speculative decoding"),
        ("firsttoken rehearse --speculative none", "without speculative decoding"),
        ("some-server --model x", "no engine is recognised"),
        ("transformers serve /m", "not known here"),
        ("""bash -c 'exec vllm serve /m --spec-method ngram --spec-tokens 2'""", "inside a script"),
    ],
)
def test_a_command_of_which_no_baseline_can_be_made_is_refused_with_what_to_do(command: str, says: str) -> None:
    with pytest.raises(NotSpeculating, match=says) as refused:
        read(command)
    assert "--baseline URL" in str(refused.value)


def test_speculation_in_a_config_file_or_the_environment_is_refused() -> None:
    config = 'speculative-config: \'{"method": "ngram", "num_speculative_tokens": 3}\'\n'
    with pytest.raises(NotSpeculating, match=r"config file x\.yaml"):
        read("vllm serve /m --config x.yaml", files={"/w/x.yaml": config})
    with pytest.raises(NotSpeculating, match="LLAMA_ARG_SPEC_TYPE"):
        read("llama-server -m x.gguf -md y.gguf", env={"LLAMA_ARG_SPEC_TYPE": "ngram-simple"})
