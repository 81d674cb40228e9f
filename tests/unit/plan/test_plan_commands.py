"""Unmodified commands, as people type them, and what must be read from each."""

from typing import Any

import pytest
from plan_world import plan_of

from firsttoken.model.plan import Plan

V, S = "vllm", "sglang"
API = "python -m vllm.entrypoints.openai.api_server"
LAUNCH = "python3 -m sglang.launch_server"


def seen(plan: Plan) -> dict[str, Any]:
    e, s = plan.endpoint, plan.sizes
    return {
        "engine": plan.engine, "version": plan.engine_version, "role": str(plan.role), "wrapper": plan.wrapper, "model": plan.model,
        "task": plan.task, "host": e.host, "port": e.port, "socket": e.unix_socket, "tls": e.tls, "root": e.root_path,
        "served": e.served_model, "key": e.needs_key, "tp": s.tp, "pp": s.pp, "dp": s.dp, "ep": s.ep, "nodes": s.nodes,
        "node_rank": s.node_rank, "world": s.world, "here": s.ranks_here,
    }  # fmt: skip


TABLE: list[tuple[str, dict[str, Any]]] = [
    # the engine's own starts
    ("vllm serve Qwen/Qwen3-8B", {"engine": V, "model": "Qwen/Qwen3-8B", "port": 8000, "role": "serves", "task": "generate", "world": 1}),
    ("/opt/venv/bin/vllm serve Qwen/Qwen3-8B --port 8011", {"engine": V, "port": 8011, "wrapper": None}),
    ("/opt/venv/bin/python /opt/venv/bin/vllm serve a/b --port=9", {"engine": V, "model": "a/b", "port": 9}),
    ("python -m vllm.entrypoints.cli.main serve a/b --port 3", {"engine": V, "model": "a/b", "port": 3}),
    (f"{API} --model /mnt/models --tensor-parallel-size 2 --port 8080", {"engine": V, "model": "/mnt/models", "tp": 2, "port": 8080}),
    ("python3.12 -u -m vllm.entrypoints.openai.api_server --model=x", {"engine": V, "model": "x"}),
    ("python -W ignore -X dev -OO -m sglang.launch_server --model x", {"engine": S, "model": "x", "host": "127.0.0.1", "port": 30000}),
    ("python -usm sglang.launch_server --model-path x --port 1", {"engine": S, "model": "x", "port": 1}),
    ("python /x/sglang/launch_server.py --model-path x", {"engine": S, "model": "x"}),
    (f"{LAUNCH} --model-path m/x --tp 8 --host 0.0.0.0 --port 8000", {"engine": S, "tp": 8, "host": "0.0.0.0", "port": 8000, "world": 8}),
    ("sglang serve a/b --port 30010", {"engine": S, "model": "a/b", "port": 30010}),
    ("sglang serve --model-path a/b", {"engine": S, "model": "a/b"}),
    # how options are written
    ("vllm serve m -tp=4 --pipeline_parallel_size 2", {"tp": 4, "pp": 2, "world": 8, "here": 8}),
    ("vllm serve m --port 1 --port 2 --port=3", {"port": 3}),
    ("vllm serve m --tensor-par 4", {"tp": 4}),
    ("vllm serve m --served-model-name a b --port 9", {"served": "a", "port": 9}),
    ("vllm serve --enforce-eager --max-model-len 512 A/B", {"model": "A/B"}),
    ("vllm serve --port 8001 local-name", {"model": "local-name", "port": 8001}),
    ("vllm serve --cudagraph-capture-sizes 1 2 4 --port 1 A/B", {"model": "A/B"}),
    ("vllm serve --async-scheduling A/B", {"model": None}),  # switch or not? unknown is better than the default
    ("vllm serve --port 1 -- A/B", {"model": "A/B"}),
    ("vllm serve -tp 2 --model A/B", {"model": "A/B", "tp": 2}),
    ("vllm serve", {"model": "Qwen/Qwen3-0.6B"}),
    ("vllm serve A/B -O3 -tp 2", {"model": "A/B", "tp": 2}),
    ("vllm serve A/B --compilation-config '{\"mode\": 3}' --port 5", {"model": "A/B", "port": 5}),
    ("vllm serve A/B --port eighty", {"port": None}),
    ("vllm serve A/B --no-enable-expert-parallel -tp 4", {"ep": 1}),
    # endpoint
    ("vllm serve m --uds /run/x.sock", {"socket": "/run/x.sock", "port": None, "host": None}),
    ("vllm serve m --ssl-keyfile k --ssl-certfile c", {"tls": True}),
    ("vllm serve m --root-path /api/", {"root": "/api"}),
    (f"{LAUNCH} --model-path m --fastapi-root-path /x", {"root": "/x"}),
    ("vllm serve m --api-key one two", {"key": True}),
    ("VLLM_API_KEY=s3 vllm serve m", {"key": True}),
    (f"{LAUNCH} --model-path m --api-key k", {"key": True}),
    ("vllm serve m", {"key": False, "host": None}),
    # sizes
    ("vllm serve m -tp 8 -pp 2 --nnodes 2 --node-rank 0 --master-addr h", {"world": 16, "here": 8, "nodes": 2, "role": "serves"}),
    ("vllm serve m -tp 2 -dp 4 -ep", {"world": 8, "ep": 8, "dp": 4}),
    ("vllm serve m -tp 2 -dp 16 --data-parallel-size-local 4", {"world": 32, "here": 8}),
    ("vllm serve m -tp 2 -dp 4 --data-parallel-rank 1", {"world": 8, "here": 2, "role": "serves"}),
    ("vllm serve m -tp 2 -pcp 2", {"world": 4}),
    (f"{LAUNCH} --model-path m --dp-size 8", {"world": 8, "dp": 8}),
    (f"{LAUNCH} --model-path m --tp 16 --dp 16 --enable-dp-attention --ep-size 16 --nnodes 2", {"world": 16, "here": 8, "ep": 16}),
    (f"{LAUNCH} --model-path m --tp 2 --pp-size 3", {"world": 6}),
    # roles and tasks
    ("vllm serve m --headless -dp 4 --data-parallel-size-local 2 --data-parallel-start-rank 2", {"role": "follower", "here": 2}),
    ("vllm serve m -tp 16 -n 2 -r 1", {"role": "follower", "node_rank": 1, "here": 8}),
    (f"{LAUNCH} --model-path m --tp 16 --nnodes 2 --node-rank 1", {"role": "follower", "node_rank": 1}),
    (f"{LAUNCH} --model-path m --disaggregation-mode prefill", {"role": "prefill"}),
    (f"{LAUNCH} --model-path m --disaggregation-mode=decode", {"role": "decode"}),
    ('vllm serve m --kv-transfer-config \'{"kv_role":"kv_producer"}\'', {"role": "prefill"}),
    ("vllm serve m --kv-transfer-config.kv_role kv_consumer", {"role": "decode"}),
    ("python -m sglang_router.launch_router --worker-urls http://a", {"engine": S, "role": "router", "port": None, "model": None}),
    ("vllm-router --port 3", {"engine": V, "role": "router", "port": 3, "model": None}),
    ("vllm serve m --runner pooling", {"task": "embed"}),
    ("vllm serve m --task score", {"task": "rerank"}),
    (f"{LAUNCH} --model-path m --is-embedding", {"task": "embed"}),
    # what stands in front
    ("A=b C=d vllm serve m --port 4", {"engine": V, "port": 4, "wrapper": None}),
    ("env -u X -C /w A=b vllm serve m --port=4", {"engine": V, "port": 4}),
    ("env -S 'vllm serve m' --port 4", {"engine": V, "port": 4}),
    ("numactl --cpunodebind=0 -m 0 vllm serve m", {"engine": V, "model": "m"}),
    ("nohup nice -n 10 taskset -c 0-3 stdbuf -oL timeout -k 5 600 vllm serve m", {"engine": V, "model": "m"}),
    ("sudo -E -u bob X=1 vllm serve m", {"engine": V, "model": "m"}),
    ("time ionice -c2 -n 0 chrt -f 50 vllm serve m", {"engine": V, "model": "m"}),
    ("chrt --idle 0 vllm serve m", {"engine": V}),
    ("uv run --with vllm==0.11.0 -p 3.12 vllm serve m", {"engine": V, "version": "0.11.0"}),
    ("uvx --from vllm@0.10.1 vllm serve m", {"engine": V, "version": "0.10.1"}),
    ("uv run -m sglang.launch_server --model-path x", {"engine": S, "model": "x"}),
    ("poetry run vllm serve m", {"engine": V}),
    ("conda run -n x --no-capture-output vllm serve m", {"engine": V}),
    ("srun -N1 --gres=gpu:8 python3 -m sglang.launch_server --model-path /l/m --tp 4", {"engine": S, "model": "/l/m", "tp": 4}),
    ("nsys profile -o out vllm serve m -tp 2", {"engine": V, "tp": 2}),
    ("apptainer exec --nv -B /a:/b img.sif vllm serve m", {"engine": V, "model": "m"}),
    (
        "bash -lc 'cd /x && HF_HOME=/h exec vllm serve a/b --port 7 2>&1 | tee log'",
        {"engine": V, "model": "a/b", "port": 7, "wrapper": "bash"},
    ),
    ("unshare -n bash -c 'ip link set lo up; exec \"$@\"' x /v/bin/vllm serve m -tp 2", {"engine": V, "model": "m", "tp": 2}),
    ("nohup bash -c 'sudo -E env A=1 vllm serve m --port 6'", {"engine": V, "port": 6}),
    ("bash -c 'vllm serve m --port $((8000+1))'", {"engine": V, "model": "m", "port": None}),
    # another machine, or no server at all
    ("ssh host vllm serve m --port 3", {"engine": None, "wrapper": "ssh", "port": None}),
    ("kubectl exec p -- vllm serve m", {"engine": None, "wrapper": "kubectl"}),
    ("echo vllm serve m", {"engine": None}),
    ("pip install vllm", {"engine": None}),
    (
        "llama-server -m /models/g.gguf -ngl 99 --port 8080",
        {"engine": "llama.cpp", "model": "/models/g.gguf", "port": 8080, "host": "127.0.0.1"},
    ),
    # engines without a profile: what any server calls it
    ("HF_HUB_OFFLINE=1 transformers serve a/b --device cpu --host 127.0.0.1 --port 7", {"model": "a/b", "host": "127.0.0.1", "port": 7}),
    (
        "text-generation-launcher --model-id a/b --hostname 0.0.0.0 -p 80 --num-shard 4",
        {"model": "a/b", "host": "0.0.0.0", "port": 80, "tp": 4},
    ),
    ("trtllm-serve /m/x --tokenizer /m/t --tp_size 2 --port=8000", {"model": "/m/x", "tp": 2, "port": 8000, "world": 2}),
    ("lmdeploy serve api_server a/b --tp 2 --server-port 23333", {"model": "a/b", "port": 23333, "tp": 2}),
    ("OLLAMA_HOST=0.0.0.0:11434 PORT=5 ollama serve", {"engine": "ollama", "model": None, "port": 11434}),
    ("python3 serve.py --port 12 --model x", {"engine": None, "port": 12, "model": "x"}),
    ("serve run configs/mistral.yaml", {"model": None}),
    ("gpustack start --server-url http://10.0.0.5 --cache-dir /var/x", {"model": None, "port": None}),
    ("some-server -p fast --port", {"engine": None, "port": None}),
]


@pytest.mark.parametrize(("command", "expected"), TABLE, ids=[command[:80] for command, _ in TABLE])
def test_a_command_is_read_as_its_program_would_read_it(command: str, expected: dict[str, Any]) -> None:
    found = seen(plan_of(command))
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    "argv", [[], [""], ["env"], ["bash", "-c"], ["docker"], ["docker", "run"], ["python", "-m"], ["sudo", "-u"], ["A=b"]]
)
def test_half_a_command_gives_an_empty_plan(argv: list[str]) -> None:
    plan = plan_of(argv)
    assert plan.engine is None
    assert plan.endpoint.port is None


def test_a_plan_carries_what_the_profile_says_about_the_engine() -> None:
    plan = plan_of("vllm serve m")
    assert plan.phases[0] == "process_start"
    assert plan.phases.index("compile") < plan.phases.index("kv_cache")  # type: ignore[arg-type]  # a StrEnum's text
    assert plan.terminates == 2
    assert plan.routes.health == "/health"
    assert plan.profile_hash
    assert "weights" in plan.ended_by_line
    assert not plan.listens_before_load


def test_metrics_that_are_switched_off_are_no_route() -> None:
    assert plan_of(f"{LAUNCH} --model-path m").routes.metrics is None
    assert plan_of(f"{LAUNCH} --model-path m --enable-metrics").routes.metrics == "/metrics"


def test_the_plan_shows_the_command_without_its_key() -> None:
    plan = plan_of("docker run -e HF_TOKEN=hf_abc123 -p 1:1 x/vllm-openai --model m --api-key sesame --port 1")
    assert plan.endpoint.needs_key
    assert "sesame" not in " ".join(plan.command)
    assert "hf_abc123" not in " ".join(plan.command)
    assert "--port" in plan.command
