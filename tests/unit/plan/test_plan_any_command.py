"""Whatever is typed gives a plan."""

import os.path

from hypothesis import given
from hypothesis import strategies as st
from plan_world import PROFILES, world

from firsttoken.model.plan import Plan
from firsttoken.plan import api_key, make_plan

SPOKEN = """
vllm serve python3 -m sglang.launch_server bash -c -lc sh s.sh ./s.sh env -S -u A=b docker podman run exec -p 80:80 -p: --net=host img
vllm/vllm-openai --model a/b --port 80 --port= --port=x -tp 2 -tp= --config c.yaml --config= -- - --api-key k timeout 5 uv uvx sudo ssh
--speculative-config.a.b {"a":1} --kv-transfer-config [1] -O3 -n -r 1 numactl chrt taskset -e -v /a:/b --mount type=bind,src=/a,dst=/b
"""
WORDS = st.sampled_from(SPOKEN.split()) | st.text(max_size=8)
TEXTS = st.text(max_size=40) | st.lists(WORDS, max_size=8).map(" ".join)


@given(st.lists(WORDS, max_size=12), TEXTS, TEXTS)
def test_no_command_and_no_file_breaks_planning(argv: list[str], script: str, config: str) -> None:
    here = world({"/srv/s.sh": "#!/bin/sh\n" + script, "/srv/c.yaml": config})
    plan = make_plan(argv, here, PROFILES)
    assert isinstance(plan, Plan)
    assert len(plan.command) == len(argv)
    assert plan.sizes.world >= plan.sizes.ranks_here >= 1
    assert all(os.path.isabs(path) for path in plan.weight_files)
    api_key(argv, here, PROFILES)


@given(st.lists(st.sampled_from(["-tp 2", "--port 81", "--enforce-eager", "--served-model-name x", "--max-model-len 9", "--dtype=auto"])))
def test_the_order_of_flags_does_not_matter(parts: list[str]) -> None:
    def read(order: list[str]) -> Plan:
        plan = make_plan(["vllm", "serve", "m", *(word for part in order for word in part.split())], world(), PROFILES)
        return Plan(engine=plan.engine, model=plan.model, endpoint=plan.endpoint, sizes=plan.sizes)

    assert read(parts) == read(list(reversed(parts)))
