"""Containers: what the client is told decides where the server can be reached from here."""

import shlex

import pytest
from plan_world import PROFILES, plan_of, world

from firsttoken.plan import read_command
from firsttoken.plan.container import Publish


@pytest.mark.parametrize(
    ("command", "engine", "model", "host", "port"),
    [
        ("docker run --gpus all -p 8001:8000 vllm/vllm-openai:v0.11.0 --model a/b", "vllm", "a/b", "0.0.0.0", 8001),
        ("docker run -p 127.0.0.1:8001:9000 vllm/vllm-openai --port 9000 --model a/b", "vllm", "a/b", "127.0.0.1", 8001),
        ("docker run -p[::1]:8001:8000/tcp vllm/vllm-openai a/b", "vllm", "a/b", "::1", 8001),
        ("docker run --publish=8000-8010:8000-8010 vllm/vllm-openai --model a/b --port 8005", "vllm", "a/b", "0.0.0.0", 8005),
        ("docker run --network host x/vllm:src serve a/b --port 9", "vllm", "a/b", None, 9),
        ("docker run -it --net=host --entrypoint python3 r/i -m vllm.entrypoints.openai.api_server --model m", "vllm", "m", None, 8000),
        ("docker run --entrypoint=bash -p 5:6 r/i -c 'vllm serve a/b --port 6'", "vllm", "a/b", "0.0.0.0", 5),
        ("podman run --rm -p 3:30000 lmsysorg/sglang:v0.5.5 python3 -m sglang.launch_server --model-path m", "sglang", "m", "0.0.0.0", 3),
        ("podman --log-level debug container run --tls-verify -p 1:30000 r/i sglang serve m", "sglang", "m", "0.0.0.0", 1),
        ("sudo -E docker -H tcp://h run --init -dit --rm -p 7:8000 r/i vllm serve m", "vllm", "m", "0.0.0.0", 7),
        ("docker run -e PORT=3 --shm-size 1g -p 8080:80 ghcr.io/x/tgi:3 --model-id a/b --num-shard 4", None, "a/b", "0.0.0.0", 8080),
        ("docker run --ipc=host vllm/vllm-openai --model a/b", "vllm", "a/b", None, None),
        ("docker run -P vllm/vllm-openai --model a/b", "vllm", "a/b", None, None),
        ("docker run -p 8000 vllm/vllm-openai --model a/b", "vllm", "a/b", None, None),
        ("docker run -p 8080:80 r/i --model-id a/b --port 8080", None, "a/b", None, None),
        ("docker exec -it -e A=b box vllm serve m --port 8000", "vllm", "m", None, None),
        ("docker compose run head python3 -m sglang.launch_server --model-path m --tp 2", "sglang", "m", None, None),
        ("docker compose up", None, None, None, None),
        ("nerdctl run -p 4:8000 r/i bash -lc 'exec vllm serve m'", "vllm", "m", "0.0.0.0", 4),
    ],
)  # fmt: skip
def test_a_container_is_reached_where_it_is_published(
    command: str, engine: str | None, model: str | None, host: str | None, port: int | None
) -> None:
    plan = plan_of(command)
    assert (plan.engine, plan.model, plan.endpoint.host, plan.endpoint.port) == (engine, model, host, port)
    assert plan.wrapper in ("docker", "podman", "nerdctl")


def test_a_port_that_is_not_published_is_told() -> None:
    plan = plan_of("docker run -p 8080:80 vllm/vllm-openai --model m")
    assert plan.not_read == ("endpoint: port 8000 of the container is published by none of its options (8080 to 80)",)


def test_what_the_client_is_told_about_the_container_is_kept() -> None:
    argv = shlex.split(
        "docker run -d --name srv --cidfile id -v /data:/models:ro --mount type=bind,src=rel,dst=/w -p 1:2 r/i:v1@sha256:ab x"
    )
    container = read_command(argv, world(), PROFILES).container
    assert container is not None
    assert (container.name, container.cidfile, container.detached, container.client) == ("srv", "/srv/id", True, "docker")
    assert (container.image, container.repository, container.tag) == ("r/i:v1@sha256:ab", "r/i", "v1")
    assert container.mounts == (("/models", "/data"), ("/w", "/srv/rel"))
    assert container.publish == (Publish(address="0.0.0.0", host=1, container=2),)


def test_a_registry_with_a_port_is_no_tag() -> None:
    argv = shlex.split("docker run host:5000/team/vllm-openai --model m")
    container = read_command(argv, world(), PROFILES).container
    assert container is not None
    assert (container.repository, container.tag) == ("host:5000/team/vllm-openai", None)


def test_a_container_has_only_the_environment_that_it_is_given() -> None:
    inside = "vllm/vllm-openai --model m"
    assert not plan_of(f"docker run {inside}", env={"VLLM_API_KEY": "k"}).endpoint.needs_key
    assert plan_of(f"docker run -e VLLM_API_KEY {inside}", env={"VLLM_API_KEY": "k"}).endpoint.needs_key
    assert plan_of(f"docker run --env VLLM_API_KEY=k {inside}").endpoint.needs_key
    assert plan_of(f"docker run --env-file e {inside}", files={"/srv/e": "# a\nVLLM_API_KEY=k\n"}).endpoint.needs_key
    assert plan_of(f"podman run --env-host {inside}", env={"VLLM_API_KEY": "k"}).endpoint.needs_key


def test_weights_and_config_files_are_found_through_mounts() -> None:
    files = {"/data/conf/c.yaml": "port: 9000\n"}
    plan = plan_of("docker run --network=host -v /data:/models vllm/vllm-openai --model /models/m --config /models/conf/c.yaml", files)
    assert plan.weight_files == ("/data/m",)
    assert plan.endpoint.port == 9000
    assert plan_of("docker run vllm/vllm-openai --model /models/m").weight_files == ()


def test_the_tag_of_the_engines_own_image_tells_its_version() -> None:
    assert plan_of("docker run vllm/vllm-openai:v0.11.0 --model m").engine_version == "0.11.0"
    assert plan_of("docker run lmsysorg/sglang:v0.5.5-cu126 sglang serve m").engine_version == "0.5.5"
    assert plan_of("docker run mine/base:1.2.3 vllm serve m").engine_version is None
    assert plan_of("docker run vllm/vllm-openai:latest --model m").engine_version is None
