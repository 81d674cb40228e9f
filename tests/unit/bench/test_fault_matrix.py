from collections import Counter

from fault_matrix import NEVER_HUNG, RIGHT, SAMPLE, Cell, cells, right_rank, right_verdicts, summary
from firsttoken.rehearsal.faults import Kind, parse_fault, refusal
from firsttoken.rehearsal.phases import Phase


def test_all_cells_make_sense_and_cover_every_kind_phase_and_number_of_ranks() -> None:
    found = [Cell.parse(name) for name in cells(0, 240)]
    assert len({cell.name for cell in found}) == 240
    faults = [parse_fault(cell.fault) for cell in found]
    assert all(refusal(fault, cell.ranks) is None for fault, cell in zip(faults, found, strict=True))
    assert {fault.kind for fault in faults} == set(Kind)
    assert min(Counter(fault.phase for fault in faults).values()) >= 15
    assert {fault.phase for fault in faults} == set(Phase)
    assert min(Counter(cell.ranks for cell in found).values()) >= 50


def test_the_sample_has_another_kind_in_each_cell_and_a_seed_gives_the_same_cells() -> None:
    sample = cells(7, SAMPLE)
    assert len({parse_fault(Cell.parse(name).fault).kind for name in sample}) == SAMPLE
    assert sample == cells(7, 240)[:SAMPLE]
    assert sample != cells(8, SAMPLE)


def test_what_is_right_follows_from_the_kind_but_for_requests_and_lonely_spins() -> None:
    assert set(RIGHT) == set(Kind)
    assert right_verdicts(Cell("lock@weights", 2)) == {"waiting"}
    assert right_verdicts(Cell("lock@first_token", 2)) == {"unserving"}
    assert right_verdicts(Cell("spin@weights", 1)) == {"stalled"}
    assert right_rank(Cell("cycle@weights:rank=0", 4)) == [0, 3]
    assert right_rank(Cell("stop@weights", 4)) is None
    assert all("hung" not in right_verdicts(Cell(f"{kind}@weights", 2)) for kind in NEVER_HUNG)


def test_the_summary_keeps_spins_apart_from_what_blocks() -> None:
    row = {"right": True, "rank_right": None, "root_right": True, "in_time": True}
    rows = [{**row, "cell": f"lock@weights x{n}", "latency_s": float(n)} for n in range(1, 11)]
    rows.append({**row, "cell": "spin@weights x2", "latency_s": 26.0})
    told = summary(rows)
    assert (told["latency_median_s"], told["latency_p90_s"], told["latency_worst_s"]) == (5.5, 9.0, 10.0)
    assert told["spin_worst_s"] == 26.0
