import os
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import as_json, as_pickle, dump, entry

from firsttoken.model.collectives import Comparison, Discord, FlightRecord
from firsttoken.survey.case_folder import read_case, read_recorders
from firsttoken.survey.flight_recorder import read_record
from firsttoken.survey.flight_recorder_compare import compare
from firsttoken.survey.flight_recorder_pickle import NotPlain, read_plain

REAL = Path(__file__).parent / "flight_recorder"
"""dumps of four gloo ranks of torch 2.13, made by make_flight_records.py; the pickles without their stacks"""


def compared(*dumps: dict[str, Any], write: Callable[[dict[str, Any]], bytes] = as_pickle) -> Comparison:
    records = [read_record(write(told), f"nccl_trace_rank_{rank}") for rank, told in enumerate(dumps)]
    assert all(isinstance(record, FlightRecord) for record in records), records
    return compare([record for record in records if isinstance(record, FlightRecord)])


def folder(name: str) -> Comparison:
    told = read_recorders(REAL / name, [])
    assert told is not None
    return told


def test_a_rank_that_skipped_a_collective_is_named_from_real_gloo_dumps() -> None:
    told = folder("gloo-skip")
    assert (told.ranks, told.behind) == ((0, 1, 2, 3), (2,))
    assert told.disagreements[0].text == "ranks 0, 1 and 3 wait in all_reduce (group 0, default_pg, number 4); rank 2 has not entered it"


def test_a_tensor_of_another_size_is_named_from_real_gloo_dumps_in_json() -> None:
    """Rank 0 found the mistake itself and ended; gloo let ranks 1 and 3 go on."""
    told = folder("gloo-sizes")
    assert (told.ranks, told.behind, told.disagreements[0].kind) == ((1, 2, 3), (1,), Discord.SIZES)


def test_ranks_that_entered_two_collectives_in_opposite_order_are_named_from_real_gloo_dumps() -> None:
    told = folder("gloo-order")
    assert told.behind == (2, 3)
    assert told.disagreements[0].kind is Discord.ORDER


@pytest.mark.parametrize("write", [as_pickle, lambda told: as_pickle(told, 4), lambda told: as_pickle(told, 5), as_json])
@pytest.mark.parametrize("version", ["2.4", "2.9", "2.10"])
def test_a_rank_that_never_entered_is_behind_in_every_format(write: Callable[[dict[str, Any]], bytes], version: str) -> None:
    waiting = [dump(rank, entry("0", 7), entry("0", 8, "started"), version=version) for rank in range(3)]
    told = compared(*waiting, dump(3, entry("0", 7), version=version), write=write)
    assert (told.behind, told.disagreements[0].kind, told.disagreements[0].seq) == ((3,), Discord.MISSING, 8)


def test_only_who_waits_for_nobody_is_behind() -> None:
    """Ranks 0 and 1 wait for 2 and 3; 2 waits for 3 in their own group."""
    first = [dump(rank, entry("0", 7), entry("0", 8, "scheduled")) for rank in (0, 1)]
    told = compared(*first, dump(2, entry("0", 7), entry("6", 3, "started")), dump(3, entry("0", 7), entry("6", 2)))
    assert told.behind == (3,)
    assert {one.ranks for one in told.disagreements} == {(2, 3), (3,)}


def test_a_rank_on_which_a_collective_does_not_end_that_ended_elsewhere_is_behind() -> None:
    ended = [dump(rank, entry("0", 7), entry("0", 8, "scheduled")) for rank in range(3)]
    told = compared(*ended, dump(3, entry("0", 7, "scheduled"), entry("0", 8, "scheduled")))
    assert (told.behind, told.disagreements[0].kind) == ((3,), Discord.STUCK)


def test_a_broadcast_may_end_on_its_sender_first() -> None:
    told = compared(dump(0, entry("5", 4, name="broadcast")), dump(1, entry("5", 4, "started", name="broadcast")))
    assert told.disagreements == ()


def test_another_operation_at_the_same_place_singles_out_the_few() -> None:
    same = [dump(rank, entry("0", 8, "started")) for rank in range(3)]
    told = compared(*same, dump(3, entry("0", 8, "started", name="_all_gather_base")))
    assert (told.behind, told.disagreements[0].kind) == ((3,), Discord.MISMATCH)
    assert "ranks 0 to 2: all_reduce; rank 3: _all_gather_base" in told.disagreements[0].text


def test_other_sizes_single_out_the_few_and_uneven_exchanges_do_not() -> None:
    same = [dump(rank, entry("0", 8, "started")) for rank in range(3)]
    assert compared(*same, dump(3, entry("0", 8, "started", size=9))).behind == (3,)
    uneven = [dump(rank, entry("0", 8, "started", name="all_to_all", size=rank)) for rank in range(4)]
    assert compared(*uneven).behind == ()


def test_two_ranks_that_differ_from_each_other_are_both_told() -> None:
    told = compared(dump(0, entry("5", 8, "started")), dump(1, entry("5", 8, "started", name="barrier")))
    assert (told.behind, told.disagreements[-1].ranks) == ((0, 1), (0, 1))


def test_all_in_one_collective_that_does_not_end_blames_nobody() -> None:
    told = compared(*(dump(rank, entry("0", 1, "started")) for rank in range(4)))
    assert told.behind == ()
    assert [(one.kind, one.text) for one in told.disagreements] == [
        (Discord.UNFINISHED, "all of ranks 0 to 3 are in all_reduce (group 0, default_pg, number 1), and it does not end")
    ]


def test_ranks_at_rest_disagree_about_nothing() -> None:
    told = compared(*(dump(rank, entry("0", 1), entry("0", 2)) for rank in range(4)))
    assert (told.behind, told.disagreements) == ((), ())


def test_a_rank_without_a_dump_is_behind_where_all_others_have_one() -> None:
    told = compared(*(dump(rank, entry("0", 8, "started")) for rank in range(3)))
    assert told.behind == (3,)
    assert "no record of it is here" in told.disagreements[0].text
    assert compared(dump(0, entry("0", 8, "started")), dump(1, entry("0", 8, "started"))).behind == ()


def test_a_receiver_whose_sender_does_not_send_waits_for_it() -> None:
    told = compared(dump(0, entry("5", 4)), dump(1, entry("5", 4), entry("5", 4, "started", name="recv 1<-0", p2p=9)))
    assert told.behind == (0,)
    assert told.disagreements[0].text == "rank 1 waits to receive from rank 0, which does not send"
    both = compared(dump(0, entry("5", 4, "started", name="send 0->1", p2p=9)), dump(1, entry("5", 4, "started", name="recv 1<-0", p2p=9)))
    assert both.behind == ()


def test_a_dump_without_open_entries_tells_by_its_status_how_far_it_is() -> None:
    """As dumps of open operations only are: group numbers are the rank's own and follow the order of creation."""
    waiting = [dump(rank, entry("0", 8, "started"), status=False) for rank in range(3)]
    late = dump(3)
    late["pg_status"] = {"2": {"last_enqueued_collective": 7, "last_completed_collective": 7}, "4": {"last_enqueued_collective": 3}}
    assert compared(*waiting, late).behind == (3,)
    late["pg_status"]["2"]["last_enqueued_collective"] = 8
    assert compared(*waiting, late).disagreements[0].kind is Discord.STUCK


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /nowhere/hit",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused(protocol: int) -> None:
    told = read_record(pickle.dumps({"entries": [_Evil()], "version": "2.9"}, protocol=protocol), "rank_0")
    assert isinstance(told, str)


def test_no_opcode_that_imports_calls_or_builds_is_known() -> None:
    dangerous = {
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "INST",
        "OBJ",
        "NEWOBJ",
        "NEWOBJ_EX",
        "PERSID",
        "BINPERSID",
        "EXT1",
        "EXT2",
        "EXT4",
    }
    for code in pickletools.opcodes:
        if code.name in dangerous:
            with pytest.raises(NotPlain):
                read_plain(b"\x80\x02}(" + code.code.encode("latin1") + b"\x01\x00\x00\x00\n\n.")


def test_a_pickle_that_asks_for_memory_by_a_number_gets_none() -> None:
    assert read_plain(b"\x80\x02}r\xff\xff\xff\xff.") == {}
    with pytest.raises(NotPlain):
        read_plain(b"\x80\x02B\xff\xff\xff\x7f.")


def test_nested_keys_that_take_for_ever_to_hash_are_refused() -> None:
    doubled = b"q\x00h\x00\x86"  # keep it, fetch it, join the two
    with pytest.raises(NotPlain, match="neither text nor a number"):
        read_plain(b"\x80\x02})" + doubled * 60 + b"K\x01s.")


DUMPS = [as_pickle(dump(0, entry("0", 7), entry("0", 8, "started", name="recv 0<-1", p2p=3))), as_json(dump(1, entry("0", 7)))]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DUMPS), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6), st.integers(0, 2000))
def test_a_damaged_dump_is_read_or_refused(data: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    told = read_record(bytes(damaged[: max(len(damaged) - cut % 400, 0)]), "rank_0")
    if isinstance(told, FlightRecord):
        compare([told, told])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    for head in (b"", b"\x80\x02", b"{", b"\x80\x02}("):
        assert isinstance(read_record(head + data, "x"), str | FlightRecord)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({*entry("0", 1), "frames"})


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES), VALUES, VALUES, st.sampled_from(["pg_config", "pg_status", "entries", "version"]))
def test_fields_of_any_kind_are_passed_over(strange: dict[str, Any], config: Any, other: Any, field: str) -> None:
    told = dump(0, entry("0", 7), entry("0", 8, "started"))
    told["entries"][1].update(strange)
    told[field] = other
    if isinstance(told["pg_config"], dict):
        told["pg_config"]["9"] = config
    records = [read_record(pickle.dumps(told, protocol=4), f"rank_{rank}") for rank in (0, 1)]
    compare([record for record in records if isinstance(record, FlightRecord)])


def test_dumps_of_a_case_are_compared_and_what_is_none_is_told(tmp_path: Path) -> None:
    inside = tmp_path / "flight_recorder"
    inside.mkdir()
    for rank in range(4):
        entries = [entry("0", 7), *([entry("0", 8, "started")] if rank != 3 else [])]
        (inside / f"_dump_{rank}").write_bytes(as_pickle(dump(rank, *entries)))
    (inside / "rank_9").write_bytes(pickle.dumps(_Evil()))
    case = read_case(tmp_path)
    assert case.flight_recorder is not None
    assert case.flight_recorder.behind == (3,)
    assert case.unread[0].startswith("flight_recorder/rank_9: not plain data: opcode")
