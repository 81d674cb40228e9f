"""What can be changed in a command, and the command with some of it changed."""

import shlex
from typing import Any

import pytest

from firsttoken.isolate.edit import edited
from firsttoken.isolate.settings import Wishes, contradictions, digest, weighed, weights
from firsttoken.model.isolation import Change, Setting
from firsttoken.session.isolating.command import Read, read

VLLM = (
    "env NCCL_DEBUG=INFO vllm serve /m --port 8001 -tp 2 --max-num-seqs 8 --no-enable-prefix-caching --compilation-config "
    '\'{"mode": 3, "splitting_ops": []}\' --speculative-config \'{"method": "ngram"}\' --spec-tokens 3 --seed=7 --api-key k1 k2'
)


def asked(command: str, gpus: bool = False, **wishes: Any) -> Read:
    return read(shlex.split(command), Wishes(**wishes), gpus=gpus)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PATH": "/usr/bin", "HOME": "/home/u"})


def labels(found: Read) -> list[str]:
    return [one.label for one in found.settings]


def without(found: Read, *parts: str) -> str:
    return shlex.join(edited(found.command, [one for one in found.settings if any(part in one.label for part in parts)]))


def test_flags_of_the_user_are_settings_and_what_the_server_is_stays() -> None:
    assert labels(asked(VLLM)) == [
        "--max-num-seqs 8",
        "--no-enable-prefix-caching",
        "mode in --compilation-config",
        "splitting_ops in --compilation-config",
        'speculation (--speculative-config {"method": "ngram"} --spec-tokens 3)',
        "--seed=7",
        "NCCL_DEBUG=INFO",
        "compilation and graphs",
        "asynchronous scheduling",
    ]


def test_nothing_changed_is_the_users_command_to_the_letter() -> None:
    found = asked(VLLM)
    assert edited(found.command, ()) == tuple(shlex.split(VLLM))


def test_what_belongs_together_goes_together() -> None:
    assert without(asked(VLLM), "speculation") == shlex.join(
        shlex.split(VLLM.replace(' --speculative-config \'{"method": "ngram"}\' --spec-tokens 3', ""))
    )


def test_one_key_of_a_json_argument_goes_and_with_the_last_the_flag() -> None:
    found = asked(VLLM)
    assert "'{\"splitting_ops\": []}'" in without(found, "mode in")
    assert "--compilation-config" not in without(found, "--compilation-config")


def test_a_variable_in_front_of_the_command_goes_with_its_word() -> None:
    assert without(asked(VLLM), "NCCL_DEBUG").startswith("vllm serve /m --port 8001")


def test_a_variable_of_the_environment_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PATH": "/usr/bin", "VLLM_USE_AOT_COMPILE": "1", "HF_HOME": "/h", "EDITOR": "vi"})
    found = asked("vllm serve /m")
    assert labels(found)[0] == "VLLM_USE_AOT_COMPILE=1"
    assert not any("HF_HOME" in label or "EDITOR" in label for label in labels(found))
    assert without(found, "VLLM_USE_AOT_COMPILE") == "env -u VLLM_USE_AOT_COMPILE vllm serve /m"


def test_a_remedy_is_offered_where_it_applies_and_is_not_there_already() -> None:
    few, many = asked("vllm serve /m", gpus=True), asked("vllm serve /m -tp 4", gpus=True)
    assert "the engine's own all-reduce" not in labels(few)
    assert {"the engine's own all-reduce", "GPU peer to peer"} <= set(labels(many))
    assert "compilation and graphs" not in labels(asked("vllm serve /m --enforce-eager"))
    assert without(many, "peer to peer", "own all-reduce") == "env NCCL_P2P_DISABLE=1 vllm serve /m -tp 4 --disable-custom-all-reduce"


def test_a_remedy_replaces_the_flag_that_it_contradicts() -> None:
    found = asked("firsttoken rehearse --graphs --shards 3")
    assert without(found, "graphs") == "firsttoken rehearse --shards 3 --no-graphs"


def test_the_same_flag_twice_is_two_settings() -> None:
    found = asked("vllm serve /m --middleware a.b --middleware c.d")
    assert labels(found)[:2] == ["--middleware a.b", "--middleware c.d"]
    assert without(found, "a.b") == "vllm serve /m --middleware c.d"


def test_a_switch_that_no_profile_knows_does_not_swallow_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked("vllm serve --some-switch org/model --max-num-seqs 4")
    assert "--some-switch" in labels(found)
    assert "org/model" in without(found, "--some-switch")


def test_keep_and_try_steer() -> None:
    found = asked(
        "vllm serve /m --max-num-seqs 8 --max-model-len 100",
        keep=("--max-num-seqs", "--enforce-eager"),
        attempt=("--max-model-len", "--attention-backend TORCH_SDPA"),
        attempt_env=("OMP_NUM_THREADS=2",),
    )
    assert labels(found) == [
        "--max-model-len 100", "--attention-backend TORCH_SDPA not given", "OMP_NUM_THREADS=2 not given", "asynchronous scheduling",
    ]  # fmt: skip
    assert without(found, "SDPA", "OMP", "len") == "env OMP_NUM_THREADS=2 vllm serve /m --max-num-seqs 8 --attention-backend TORCH_SDPA"


def test_another_image_is_a_setting_and_remedies_go_into_the_container() -> None:
    command = "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.32.0 --model org/m -tp 4"
    found = read(shlex.split(command), Wishes(swaps=(("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.31.0"),)), gpus=True)
    assert "v0.31.0" in without(found, "vllm-openai")
    assert without(found, "peer to peer").startswith("docker run -e NCCL_P2P_DISABLE=1 --gpus all")


def test_a_script_keeps_its_flags_to_itself_and_says_so() -> None:
    found = asked("env NCCL_DEBUG=INFO bash -c 'vllm serve /m --max-num-seqs 8'")
    assert labels(found) == ["NCCL_DEBUG=INFO"]
    assert found.not_read is not None


def test_secrets_are_in_no_label() -> None:
    found = asked("env VLLM_API_KEY=hunter2secret vllm serve /m --some-password hunter2secret")
    assert "hunter2secret" not in "".join(labels(found))


def test_the_failing_phase_and_the_causes_found_make_suspects_and_other_remedies_are_left_out() -> None:
    graphs = Setting(label="graphs", changes=(Change(kind="flag", name="--eager", action="add"),), remedy=True, phases=("graph_capture",))
    peer = Setting(label="peer", changes=(Change(kind="env", name="NCCL_P2P_DISABLE", action="add"),), remedy=True, phases=("weights",))
    own = Setting(label="--seed 1", changes=(Change(kind="flag", name="--seed", action="remove"),))
    found = weighed((own, graphs, peer), "graph_capture", ())
    assert [one.label for one in found] == ["--seed 1", "graphs"]
    row = {"cause": "pcie-p2p-broken", "confidence": 0.9, "settings": [{"kind": "env", "name": "NCCL_P2P_DISABLE", "value": "1"}]}
    named = weighed((own, graphs, peer), "graph_capture", (row,))
    assert [one.because for one in named] == ["", "works in graph_capture", "named by pcie-p2p-broken"]
    plain, suspect, worst = weights(named)
    assert plain == 1.0 < suspect < worst or plain == suspect == 1.0


def test_another_value_of_what_is_given_is_one_setting_that_is_set_to_it() -> None:
    found = asked(VLLM, attempt=("--max-num-seqs 4",), attempt_env=("NCCL_DEBUG=WARN",))
    assert "--max-num-seqs 8 → 4" in labels(found)
    assert "NCCL_DEBUG=INFO → WARN" in labels(found)
    assert not [label for label in labels(found) if "not given" in label]
    words = without(found, "→")
    assert words.startswith("env NCCL_DEBUG=WARN vllm serve /m")
    assert words.count("--max-num-seqs") == 1
    assert words.endswith("--max-num-seqs 4")


def test_of_what_goes_together_one_flag_is_set_by_itself_and_goes_with_the_others() -> None:
    found = asked("vllm serve /m --speculative-config a --spec-tokens 3", attempt=("--speculative-config b",))
    assert labels(found)[:2] == ["speculation (--speculative-config a --spec-tokens 3)", "--speculative-config a → b"]
    assert without(found, "→") == "vllm serve /m --spec-tokens 3 --speculative-config b"
    assert without(found, "spec") == "vllm serve /m"


def test_of_a_flag_that_is_given_twice_one_setting_sets_it() -> None:
    found = asked("vllm serve /m --seed 1 --seed 2", attempt=("--seed 3",))
    assert [label for label in labels(found) if "seed" in label] == ["--seed 1 → 3"]
    assert without(found, "seed") == "vllm serve /m --seed 3"


def test_a_remedy_that_is_given_stays_unless_it_is_to_be_tried() -> None:
    command = "vllm serve /m --enforce-eager --no-async-scheduling"
    assert labels(asked(command)) == []
    assert asked(command).stays == ("/m", "--enforce-eager", "--no-async-scheduling")
    found = asked(command, attempt=("--enforce-eager",))
    assert labels(found) == ["--enforce-eager"]
    assert without(found, "eager") == "vllm serve /m --no-async-scheduling"
    assert found.stays == ("/m", "--no-async-scheduling")


def test_a_wish_for_what_is_so_already_or_has_no_name_is_told() -> None:
    found = asked(VLLM, attempt=("--max-num-seqs 8",), attempt_env=("NCCL_DEBUG=INFO", "=1", "NCCL_DBUG"))
    assert found.idle_wishes == ("--try --max-num-seqs 8", "--try-env =1", "--try-env NCCL_DBUG", "--try-env NCCL_DEBUG=INFO")


def test_an_env_that_has_nothing_left_to_set_goes_too() -> None:
    found = asked("env NCCL_DEBUG=INFO vllm serve /m", attempt_env=("NCCL_IB_DISABLE=1",))
    assert without(found, "NCCL_DEBUG") == "vllm serve /m"
    assert without(found, "NCCL") == "env NCCL_IB_DISABLE=1 vllm serve /m"
    assert without(found, "IB_DISABLE") == "env NCCL_DEBUG=INFO NCCL_IB_DISABLE=1 vllm serve /m"


@pytest.mark.parametrize(("ahead", "wish", "edited_ahead"), [
    ("env -u A", "A=1", "env -u A env A=1"),
    ("env -i B=1", "A=1", "env -i B=1 env A=1"),
    ("env A=2 A=3", "A=1", "env A=1"),
    ("env A=1 env A=2", "A=3", "env env A=3"),
    ("sudo -E A=1", "A=3", "sudo -E A=3"),
    ("sudo", "A=3", "sudo env A=3"),
    ("", "A=3", "env A=3"),
    ("uv run", "A=3", "uv run env A=3"),
    ("numactl -N 0 env B=1", "A=3", "numactl -N 0 env B=1 env A=3"),
])  # fmt: skip
def test_a_variable_reaches_the_program_whatever_stands_in_front(ahead: str, wish: str, edited_ahead: str) -> None:
    found = asked(f"{ahead} vllm serve /m", attempt_env=(wish,))
    assert without(found, "A=") == f"{edited_ahead} vllm serve /m"


@pytest.mark.parametrize("command", [
    "env -S 'B=1 vllm serve m'", "flock /tmp/l -c 'vllm serve m'", "torchrun --nproc-per-node 2 serve.py", "sh run.sh", "uv run -m vllm.x",
])  # fmt: skip
def test_in_front_of_what_is_no_program_nothing_is_put(command: str) -> None:
    found = asked(command, attempt_env=("A=1",))
    assert without(found, "A=1") == shlex.join(("env", "A=1", *shlex.split(command)))


def test_a_variable_that_is_assigned_twice_goes_whole_and_one_that_does_not_get_there_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", {"PATH": "/usr/bin", "HOME": "/home/u", "VLLM_X": "3"})
    assert without(asked("env FOO=1 VLLM_X=1 VLLM_X=4 vllm serve /m"), "VLLM_X") == "env -u VLLM_X FOO=1 vllm serve /m"
    assert "VLLM_X=3" in labels(asked("vllm serve /m"))
    assert not [label for label in labels(asked("env -i FOO=1 vllm serve /m")) if "VLLM_X" in label]


@pytest.mark.parametrize("given", ["-e A=1", "--env A=1", "-eA=1", "--env=A=1"])
def test_a_variable_that_a_container_is_given_is_given_anew(given: str) -> None:
    found = asked(f"docker run {given} --rm vllm/vllm-openai --model m", attempt_env=("A=2",))
    assert without(found, "A=2") == "docker run -e A=2 --rm vllm/vllm-openai --model m"


@pytest.mark.parametrize(("text", "values"), [
    ('--hf-overrides {"a": 1}', ('{"a": 1}',)),
    ('--hf-overrides={"a": 2}', ('{"a": 2}',)),
    ("--served-model-name 'x y' z", ("x y", "z")),
    ("--temperature -1", ("-1",)),
    ("--flag", ()),
    ("--quote it's", ("it's",)),
])  # fmt: skip
def test_the_words_of_a_wish_are_those_of_a_shell_and_json_is_one(text: str, values: tuple[str, ...]) -> None:
    (setting,) = [one for one in asked("vllm serve /m", attempt=(text,)).settings if one.wished]
    assert setting.changes[0].values == values


def test_a_wish_that_the_profile_knows_as_a_remedy_is_that_one() -> None:
    found = asked("vllm serve /m", attempt=("--enforce-eager",))
    assert labels(found) == ["compilation and graphs", "asynchronous scheduling"]
    assert [one.label for one in weighed(found.settings, "weights", ())] == ["compilation and graphs"], (
        "asked for, in whatever phase it fails"
    )


def test_flags_are_known_in_any_spelling_and_what_stays_is_set_where_that_is_wished() -> None:
    found = asked("vllm serve /m -tp 2 --port 1", attempt=("--tensor-parallel-size 1",), keep=("--port",))
    assert "-tp 2 → 1" in labels(found)
    assert found.stays == ("/m", "--port 1")
    assert without(found, "-tp") == "vllm serve /m --port 1 -tp 1"
    assert asked("vllm serve /m -tp 2", attempt=("--tensor-parallel-size 2",)).idle_wishes == ("--try -tp 2",)


def test_two_wishes_for_one_flag_are_not_given_at_once() -> None:
    found = asked("vllm serve /m", attempt=("--max-num-seqs 4", "--max-num-seqs 2"))
    assert without(found, "max-num-seqs") == "vllm serve /m --max-num-seqs 2"


def test_secrets_that_look_alike_are_settings_of_their_own_and_a_swapped_one_is_not_shown() -> None:
    found = asked("vllm serve /m --foo-token a1 --foo-token b2", swaps=(("b2", "c3"),))
    assert len([label for label in labels(found) if "foo-token" in label]) == 2
    (swap,) = [one for one in found.settings if "→" in one.label]
    assert swap.label == swap.change == "**** → ****"


def test_a_flag_goes_in_front_of_the_words_that_end_the_flags() -> None:
    found = asked("vllm serve --max-num-seqs 8 -- /m", attempt=("--max-num-seqs 4",))
    assert without(found, "max-num-seqs") == "vllm serve --max-num-seqs 4 -- /m"


def test_another_value_is_another_search_also_where_both_are_masked() -> None:
    one, other = (asked("vllm serve /m", attempt_env=(f"MY_TOKEN={value}",)) for value in ("a1", "b2"))
    assert labels(one) == labels(other)
    assert digest(one.command, one.settings) != digest(other.command, other.settings)
    assert contradictions(Wishes(keep=("--seed", "A"), attempt=("--seed 2",), attempt_env=("A=1",))) == ("--seed", "A")
