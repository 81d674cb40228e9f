"""A plan learns from processes, sockets and log lines."""

from plan_world import PROFILES, plan_of, world

from firsttoken.plan import by_output, replan


def test_an_engine_that_is_recognised_later_brings_its_profile() -> None:
    plan = plan_of("bash serve.sh")
    assert plan.engine is None
    better = replan(plan, PROFILES, engine="sglang", version="0.5.23")
    assert (better.engine, better.engine_version, better.endpoint.port) == ("sglang", "0.5.23", 30000)
    assert better.phases == PROFILES["sglang"].order
    assert better.budgets
    assert better.command == plan.command


def test_the_command_of_the_wrappers_child_is_read_like_a_command() -> None:
    plan = plan_of("./start")
    child = ["/v/bin/python3", "/v/bin/vllm", "serve", "a/b", "-tp", "2", "--port", "81", "--api-key", "sesame"]
    better = replan(plan, PROFILES, argv=child, world=world())
    assert (better.engine, better.model, better.sizes.tp, better.endpoint.port) == ("vllm", "a/b", 2, 81)
    assert better.endpoint.needs_key
    assert better.command == ("./start",)


def test_a_child_that_is_no_server_changes_nothing() -> None:
    plan = plan_of("vllm serve m")
    assert replan(plan, PROFILES, argv=["python", "-c", "spawn_main()"], world=world()) == plan


def test_what_was_seen_outright_wins() -> None:
    plan = plan_of("vllm serve m")
    better = replan(plan, PROFILES, host="10.0.0.1", port=9, served_model="x", world_size=16)
    assert (better.endpoint.host, better.endpoint.port, better.endpoint.served_model) == ("10.0.0.1", 9, "x")
    assert better.sizes.world == 16
    assert better.model == "m"


def test_a_container_keeps_its_published_port_when_its_processes_are_seen() -> None:
    plan = plan_of("docker run -p 9001:8000 mine/img")
    better = replan(plan, PROFILES, argv=["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], world=world())
    assert (better.engine, better.model, better.endpoint.port, better.wrapper) == ("vllm", "m", 9001, "docker")
    assert replan(plan_of("docker run mine/img"), PROFILES, engine="vllm").endpoint.port is None


def test_titles_and_lines_name_an_engine() -> None:
    assert by_output(PROFILES, titles=["bash serve.sh", "VLLM::Worker_TP0"]) == "vllm"
    assert by_output(PROFILES, titles=["sglang::scheduler_TP0"]) == "sglang"
    assert by_output(PROFILES, lines=["hello", "The server is fired up and ready to roll!"]) == "sglang"
    assert by_output(PROFILES, titles=["python"], lines=["INFO: Started server process"]) is None
