"""/proc/locks, as the kernel writes it."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.locks import parse_locks

TABLE = b"""1: POSIX  ADVISORY  WRITE 23610 fe:00:2189739 0 EOF
1: -> POSIX  ADVISORY  WRITE 23696 fe:00:2189739 0 EOF
2: OFDLCK ADVISORY  WRITE -1 fe:00:2189738 0 EOF
2: -> OFDLCK ADVISORY  WRITE -1 fe:00:2189738 0 EOF
3: FLOCK  ADVISORY  WRITE 23316 fe:00:2189735 0 EOF
3: -> FLOCK  ADVISORY  WRITE 23485 fe:00:2189735 0 EOF
3:  -> FLOCK  ADVISORY  WRITE 23486 fe:00:2189735 0 EOF
4: LEASE  ACTIVE    READ  981 00:2f:16050426 0 EOF
"""


def test_holders_and_waiters_are_told_apart() -> None:
    rows = parse_locks(TABLE)
    assert [(row.number, row.waiting, row.sort, row.pid) for row in rows] == [
        (1, False, "POSIX", 23610),
        (1, True, "POSIX", 23696),
        (2, False, "OFDLCK", -1),
        (2, True, "OFDLCK", -1),
        (3, False, "FLOCK", 23316),
        (3, True, "FLOCK", 23485),
        (3, True, "FLOCK", 23486),
        (4, False, "LEASE", 981),
    ]
    assert {row.file for row in rows if row.number == 3} == {("fe:00", 2189735)}


def test_rows_that_are_torn_or_odd_are_left_out() -> None:
    assert parse_locks(b"1: POSIX  ADVISORY  WRITE\n: x\n7: FLOCK ADVISORY WRITE x fe:00:1 0 EOF\n") == ()
    assert parse_locks(None) == ()


@given(st.one_of(st.binary(max_size=400), st.lists(st.sampled_from(TABLE.split()), max_size=40).map(b" ".join)))
def test_no_table_is_too_odd(raw: bytes) -> None:
    for row in parse_locks(raw):
        assert row.number >= 0
