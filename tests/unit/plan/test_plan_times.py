"""Budgets and timers."""

import pytest
from plan_world import PROFILES, plan_of, world

from firsttoken.model.words import Phase
from firsttoken.plan import make_plan


def timers(command: str, **env: str) -> dict[str, float]:
    return {timer.name: timer.seconds for timer in plan_of(command, env=env).timers}


def test_timers_take_what_the_command_and_the_environment_say() -> None:
    launch = "python -m sglang.launch_server --model-path m"
    assert timers(launch)["--watchdog-timeout"] == 300
    assert timers(f"{launch} --watchdog-timeout 600")["--watchdog-timeout"] == 600
    assert timers(f"{launch} --watchdog-timeout=600")["--watchdog-timeout"] == 600
    assert timers("vllm serve m -dp 2")["VLLM_ENGINE_READY_TIMEOUT_S"] == 600
    assert timers("vllm serve m -dp 2", VLLM_ENGINE_READY_TIMEOUT_S="3600")["VLLM_ENGINE_READY_TIMEOUT_S"] == 3600
    assert timers("VLLM_ENGINE_READY_TIMEOUT_S=3600 vllm serve m -dp 2")["VLLM_ENGINE_READY_TIMEOUT_S"] == 3600


def test_a_timer_that_is_off_or_does_not_run_here_is_left_out() -> None:
    launch = "python -m sglang.launch_server --model-path m"
    assert "--watchdog-timeout" not in timers(f"{launch} --watchdog-timeout 0")
    assert "--soft-watchdog-timeout" not in timers(launch)
    assert timers(f"{launch} --soft-watchdog-timeout 60")["--soft-watchdog-timeout"] == 60
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in timers("vllm serve m")


@pytest.mark.parametrize("value", ["soon", "", "nan", "inf", "1e99"])
def test_a_timer_that_is_set_to_no_number_keeps_the_engines_own(value: str) -> None:
    launch = f"python -m sglang.launch_server --model-path m --watchdog-timeout={value}"
    assert timers(launch).get("--watchdog-timeout") == 300


def test_budgets_grow_with_the_weights_and_with_history_and_never_shrink() -> None:
    argv = ["vllm", "serve", "m"]
    usual = {budget.phase: budget for budget in make_plan(argv, world(), PROFILES).budgets}
    assert usual[Phase.WEIGHTS].source == "profile"
    large = {b.phase: b for b in make_plan(argv, world(), PROFILES, weight_bytes=320 * 10**9).budgets}
    assert (large[Phase.WEIGHTS].source, large[Phase.WEIGHTS].seconds) == ("size", 1280)
    history = {Phase.WEIGHTS: 5000.0, Phase.COMPILE: 0.1}
    seen = {b.phase: b for b in make_plan(argv, world(), PROFILES, history=history, weight_bytes=10).budgets}
    assert (seen[Phase.WEIGHTS].source, seen[Phase.WEIGHTS].seconds) == ("history", 15000)
    assert seen[Phase.COMPILE] == usual[Phase.COMPILE]
