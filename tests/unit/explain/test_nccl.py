"""NCCL's own lines."""

from firsttoken.explain.nccl import communicator_init


def _line(rank: int, state: str) -> str:
    return f"h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 - {state}\n"


def test_all_some_or_none_of_the_ranks_completed() -> None:
    start = _line(0, "Init START") + _line(1, "Init START")
    assert communicator_init(start).state == "none"
    half = communicator_init(start + _line(1, "Init COMPLETE"))
    assert (half.state, half.unfinished) == ("some", (0,))
    assert communicator_init(start + _line(0, "Init COMPLETE") + _line(1, "Init COMPLETE")).state == "all"


def test_a_log_without_such_lines_says_nothing() -> None:
    assert communicator_init("nothing").state is None


def test_a_completion_without_its_begin_is_one_and_leaves_the_others_unfinished() -> None:
    assert communicator_init(_line(0, "Init COMPLETE")).state == "all"
    mixed = communicator_init(_line(2, "Init START") + _line(0, "Init START") + _line(1, "Init COMPLETE"))
    assert (mixed.state, mixed.unfinished) == ("some", (0, 2))
    none = communicator_init(_line(1, "Init START") + _line(0, "Init START"))
    assert none.unfinished == (0, 1)


def test_old_versions_do_not_name_the_call() -> None:
    begun = "h:1:2 [0] NCCL INFO comm 0x1476dca0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 23000 commId 0xa0 - Init START\n"
    told = "h:1:2 [0] NCCL INFO comm 0x1476dca0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
    assert communicator_init(begun + told).state == "none"
    assert communicator_init(begun + told + begun.replace("START", "COMPLETE")).state == "all"
