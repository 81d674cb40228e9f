"""nvidia-smi's tables, whatever was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.survey.gpus_csv import read_gpus


def test_units_and_missing_values_are_understood() -> None:
    header = "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%], power.draw [W]"
    (gpu,) = read_gpus(f"{header}\n0, Some GPU, [N/A], 24576 MiB, 97 %, 35.20 W\n")
    assert (gpu.index, gpu.name, gpu.memory_used, gpu.memory_total, gpu.utilisation, gpu.power) == (
        0,
        "Some GPU",
        None,
        24576.0,
        97.0,
        35.2,
    )


def test_columns_may_come_in_any_order() -> None:
    (gpu,) = read_gpus("power.draw [W], utilization.gpu [%], name\n71.5 W, 0 %, Card\n")
    assert (gpu.name, gpu.power, gpu.utilisation) == ("Card", 71.5, 0.0)


def test_a_table_without_a_header_says_nothing() -> None:
    assert read_gpus("0, Card, 5 MiB\n") == ()


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    read_gpus("index, name, utilization.gpu [%], power.draw [W]\n" + data.decode("utf8", "replace"))


def test_throttling_and_links_are_read_under_either_name() -> None:
    header = "index, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, temperature.gpu"
    (old,) = read_gpus(f"{header}, clocks_throttle_reasons.active\n0, 3, 4, 4, 16, 91, 0x0000000000000044\n")
    assert (old.link_generation, old.link_generation_most, old.link_width, old.link_width_most, old.temperature) == (3, 4, 4, 16, 91.0)
    assert old.throttled == ("hardware thermal slowdown",)
    (new,) = read_gpus("index, clocks_event_reasons.hw_slowdown, clocks_event_reasons.sw_thermal_slowdown\n0, Not Active, Active\n")
    assert new.throttled == ("software thermal slowdown",)


def test_what_was_not_asked_for_is_not_told() -> None:
    (gpu,) = read_gpus("index, name\n0, Card\n")
    assert (gpu.throttled, gpu.link_width) == (None, None)
