"""What is checked in a Parquet footer is what Arrow reads there: no number has two meanings."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.errors import InputError
from recalib.files import read
from recalib.files.thrift import I32, I64, Cursor
from tests.hostile.bombs import shared_pages


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _integer(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers(value: int) -> None:
    """As the protocol has them; those of 32 bits have 32 bits, to which Arrow would cut them."""
    struct = b"\x16" + _integer(value) + b"\x00"
    assert Cursor(struct).integers(I64) == {1: value}
    assert Cursor(struct).integers(I32) == {}  # of another type, so that Arrow passes it over
    small = b"\x15" + _integer(value) + b"\x00"
    if -(2**31) <= value < 2**31:
        assert Cursor(small).integers(I32) == {1: value}
    else:
        with pytest.raises(ValueError, match="more bits"):
            Cursor(small).integers(I32)


@pytest.mark.parametrize("number", [0, -1, 2**15, 2**16 + 7, 2**40])
def test_field_numbers(number: int) -> None:
    """Arrow keeps 16 bits of them: 65,543 would be its field 7."""
    with pytest.raises(ValueError, match="a field with the number"):
        Cursor(b"\x06" + _integer(number) + b"\x02\x00").integers(I64)


def test_fields_that_come_twice() -> None:
    """Two lists of columns in a row group: one would be checked and the other be read."""
    with pytest.raises(ValueError, match="number 1 after 1"):
        Cursor(b"\x16\x02\x06\x02\x04\x00").integers(I64)


def test_the_end_of_a_struct() -> None:
    """A type of 0 ends one, whatever stands beside it."""
    cursor = Cursor(b"\x16\x02\x10\x16\x04\x00")
    assert cursor.integers(I64) == {1: 1}
    assert cursor.position == 3


@pytest.mark.parametrize("content", [b"\x25", b"\xf5\xff\xff\xff\xff\x0f", b"\x20ab"])
def test_lists_that_lie(content: bytes) -> None:
    """More elements than bytes, and elements of no type."""
    with pytest.raises((IndexError, ValueError)):
        Cursor(content).skip(9)


def test_row_groups_that_share_pages() -> None:
    """Each page is in one column of one group, or a small file would be hours of work."""
    rows = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)
    data = read(io.BytesIO(shared_pages(rows, 1)), format="parquet", labels="optional")
    np.testing.assert_array_equal(data.logits, rows)
    with pytest.raises(InputError, match="in several columns"):
        read(io.BytesIO(shared_pages(rows, 3)), format="parquet", labels="optional")
