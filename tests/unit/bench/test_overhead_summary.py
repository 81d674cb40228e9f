from typing import Any

from overhead import summarise


def pair(plain: float, ours: float) -> dict[str, Any]:
    return {
        "plain": {"ready_s": plain, "asked_s": plain + 0.1, "token_s": plain + 0.2},
        "firsttoken": {"ready_s": ours, "asked_s": ours + 0.3, "token_s": ours + 0.4, "command_s": ours + 1.0},
    }


def test_ratios_are_of_pairs_and_not_of_medians() -> None:
    told = summarise([pair(10.0, 10.2), pair(20.0, 20.2), pair(40.0, 40.2)], seed=0)
    assert told["ready"]["ratio"]["median"] == 1.01
    assert told["ready"]["more_s"]["median"] == 0.2
    assert told["token"]["more_s"]["median"] == 0.4
    assert told["command"]["more_s"]["median"] == 1.0
    assert (told["plain_asks_after_ready_s"]["median"], told["firsttoken_asks_after_ready_s"]["median"]) == (0.1, 0.3)


def test_no_pairs_give_no_ratio() -> None:
    assert "ready" not in summarise([], seed=0)
