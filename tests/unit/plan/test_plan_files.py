"""Scripts, config files, keys and weights: what is read through the world."""

import shlex
from collections.abc import Mapping

import pytest
from plan_world import PROFILES, plan_of, world

from firsttoken.plan import api_key

SERVE = '#!/bin/bash\nset -e\nsource ./env.sh\nMODEL=${MODEL:-a/b}\nexec vllm serve "$MODEL" \\\n  --port 9000 "$@"\n'


def test_a_script_that_ends_in_a_server_is_read() -> None:
    plan = plan_of("bash serve.sh -tp 2", {"/srv/serve.sh": SERVE, "/srv/env.sh": "export HF_HOME=/hf\n"})
    assert (plan.engine, plan.model, plan.endpoint.port, plan.sizes.tp, plan.wrapper) == ("vllm", "a/b", 9000, 2, "bash")
    assert plan.weight_files == ("/hf/hub/models--a--b",)


def test_a_script_is_read_by_its_own_name_and_its_first_line() -> None:
    assert plan_of("./serve.sh", {"/srv/serve.sh": SERVE}).engine == "vllm"
    assert plan_of("/srv/serve.sh", {"/srv/serve.sh": SERVE.replace("/bin/bash", "/usr/bin/env bash")}, env={"MODEL": "x"}).model == "x"
    assert plan_of("./serve.sh", {"/srv/serve.sh": SERVE.replace("/bin/bash", "/usr/bin/env python")}).engine is None


def test_a_server_in_the_background_with_a_waiting_loop_is_found() -> None:
    text = "PORT=$(pick)\npython3 -m sglang.launch_server --model-path m --port $PORT > log 2>&1 &\nwhile ! curl -s h; do sleep 1; done\n"
    plan = plan_of("sh run.sh", {"/srv/run.sh": text})
    assert (plan.engine, plan.model, plan.endpoint.port) == ("sglang", "m", None)
    assert plan.not_read == ("port: flag --port is set by something that only a shell can work out",)


@pytest.mark.parametrize("text", ["vllm serve a/b\nvllm serve c/d\n", "make up\n./poll\n", "$(start) serve m\n", ""])
def test_a_script_in_doubt_gives_no_engine(text: str) -> None:
    plan = plan_of("bash serve.sh --port 5", {"/srv/serve.sh": text})
    assert plan.engine is None
    assert plan.wrapper == "bash"
    assert plan.endpoint.port == 5  # what the script is told is the best guess


def test_a_script_that_starts_itself_ends() -> None:
    assert plan_of("bash serve.sh", {"/srv/serve.sh": "bash serve.sh\nbash ./serve.sh\n"}).engine is None


def test_a_script_that_cannot_be_read_is_told() -> None:
    assert plan_of("bash serve.sh").not_read == ("script serve.sh: not readable",)


def test_a_script_of_one_unknown_command_is_read_like_it() -> None:
    plan = plan_of("bash s.sh", {"/srv/s.sh": "exec other-server -m /m/x.gguf --port 81\n"})
    assert (plan.engine, plan.model, plan.endpoint.port) == (None, "/m/x.gguf", 81)


CONFIG = (
    "model: a/b\nport: 12323\ntensor-parallel-size: 4\nenable_expert_parallel: true\napi-key: [k1, k2]\nspeculative-config: {model: x}\n"
)


def test_a_config_file_stands_behind_what_the_command_says() -> None:
    files = {"/srv/c.yaml": CONFIG}
    plan = plan_of("vllm serve --config c.yaml", files)
    assert (plan.model, plan.endpoint.port, plan.sizes.tp, plan.sizes.ep, plan.endpoint.needs_key) == ("a/b", 12323, 4, 4, True)
    plan = plan_of("vllm serve c/d --config c.yaml --port 5 --no-enable-expert-parallel", files)
    assert (plan.model, plan.endpoint.port, plan.sizes.tp, plan.sizes.ep) == ("c/d", 5, 4, 1)
    assert plan_of("python -m sglang.launch_server --config c.yaml", {"/srv/c.yaml": "tp-size: 2\nmodel-path: m\n"}).sizes.tp == 2


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (None, "config file c.yaml: not readable"),
        ("a: [", "config file c.yaml: not YAML"),
        ("- a\n", "config file c.yaml: no mapping of settings"),
        ("tensor-parallel-size: many\n", "tp: config file c.yaml is 'many', which is no int"),
    ],
)
def test_a_config_file_that_cannot_be_read_is_told(text: str | None, note: str) -> None:
    plan = plan_of("vllm serve m --config c.yaml", {} if text is None else {"/srv/c.yaml": text})
    assert plan.not_read[0].startswith(note)
    assert plan.endpoint.port == 8000


def key(command: str, files: Mapping[str, str] | None = None, **env: str) -> tuple[str, str] | None:
    return api_key(shlex.split(command), world(files, env), PROFILES)


def test_the_key_is_found_with_its_source() -> None:
    assert key("vllm serve m --api-key one two --port 1") == ("one", "flag --api-key")
    assert key("vllm serve m --api_key=one") == ("one", "flag --api-key")
    assert key("vllm serve m", VLLM_API_KEY="one") == ("one", "environment VLLM_API_KEY")
    assert key("env VLLM_API_KEY=one vllm serve m") == ("one", "environment VLLM_API_KEY")
    assert key("vllm serve m --config c.yaml", {"/srv/c.yaml": CONFIG}) == ("k1", "config file c.yaml")
    assert key("docker run -e VLLM_API_KEY=one vllm/vllm-openai --model m") == ("one", "environment VLLM_API_KEY")
    assert key("llama-server -m x --api-key one") == ("one", "flag --api-key")
    assert key("vllm serve m") is None
    assert key("bash -c 'vllm serve m --api-key $(cat key)'") is None


def test_weights_of_a_local_model_are_its_folder() -> None:
    assert plan_of("vllm serve /m/x/").weight_files == ("/m/x",)
    assert plan_of("vllm serve ~/x").weight_files == ("/home/u/x",)
    assert plan_of("vllm serve models/tiny", {"/srv/models/tiny/config.json": "{}"}).weight_files == ("/srv/models/tiny",)
    assert plan_of("llama-server -m ./x.gguf").weight_files == ("/srv/x.gguf",)


def test_weights_of_a_hub_model_are_its_snapshot_or_where_it_will_come() -> None:
    hub = "/home/u/.cache/huggingface/hub/models--a--b"
    assert plan_of("vllm serve a/b").weight_files == (hub,)
    files = {f"{hub}/refs/main": "abc\n", f"{hub}/snapshots/abc/x": "", f"{hub}/snapshots/def/x": ""}
    assert plan_of("vllm serve a/b", files).weight_files == (f"{hub}/snapshots/abc",)
    assert plan_of("vllm serve a/b --download-dir /d").weight_files == ("/d/models--a--b",)
    assert plan_of("vllm serve a/b", env={"HF_HUB_CACHE": "/c"}).weight_files == ("/c/models--a--b",)
    assert plan_of("vllm serve plain-name").weight_files == ()
