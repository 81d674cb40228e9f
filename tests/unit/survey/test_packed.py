"""LZ4 blocks and zstd frames, by what compressors make of text that repeats, and by damage."""

import contextlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.survey.packed import unpacked
from firsttoken.survey.window import Damaged


def test_a_block_with_long_lengths_and_overlapping_copies_is_unpacked() -> None:
    # 20 literals, then a copy of 300 bytes from 1 back; 2 literals at the end
    block = bytes([0xFF, 5]) + b"abcdefghijklmnopqrst" + b"\x01\x00" + bytes([255, 26]) + bytes([0x20]) + b"yz"
    assert unpacked("lz4", block, 322) == b"abcdefghijklmnopqrst" + b"t" * 300 + b"yz"


@given(st.binary(min_size=1, max_size=3000))
def test_a_zstd_frame_is_unpacked(data: bytes) -> None:
    assert unpacked("zstd", zstandard.ZstdCompressor().compress(data), len(data)) == data


@given(st.sampled_from(["lz4", "zstd"]), st.binary(max_size=200), st.integers(-1, 1000))
def test_damage_is_told_as_such(packing: str, data: bytes, size: int) -> None:
    with contextlib.suppress(Damaged):
        assert len(unpacked(packing, data, size)) == size


def test_a_size_that_no_image_has_is_refused() -> None:
    with pytest.raises(Damaged, match="bytes when unpacked"):
        unpacked("zstd", b"", 1 << 40)
