"""Digests recognise rows in another order, format or dtype."""

from __future__ import annotations

import io

import numpy as np
import pytest

from recalib.files import read
from recalib.fitting.row_digests import (
    are_distinct,
    decode_digests,
    encode_digests,
    may_be_chance,
    row_digests,
)
from tests.files.examples import example, write_npz, write_parquet, write_safetensors
from tests.fitting.conftest import draw


@pytest.mark.parametrize("write", [write_npz, write_parquet, write_safetensors])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digest_does_not_depend_on_format_or_dtype(write, dtype) -> None:
    logits, labels = example()
    format = {write_npz: "npz", write_parquet: "parquet"}.get(write, "safetensors")
    data = read(io.BytesIO(write(logits.astype(dtype), labels)), format=format)
    np.testing.assert_array_equal(row_digests(data.logits), row_digests(logits))


def test_digest_follows_its_row() -> None:
    logits, _ = draw(1000, 5, 1.0)
    order = np.random.default_rng(0).permutation(1000)
    digests = row_digests(logits)
    assert len(set(digests.tolist())) == 1000
    np.testing.assert_array_equal(row_digests(logits[order]), digests[order])


def test_blocks_do_not_change_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, _ = draw(100, 5, 1.0)
    digests = row_digests(logits)
    monkeypatch.setattr("recalib.fitting.row_digests._BLOCK", 35)
    np.testing.assert_array_equal(row_digests(logits), digests)


def test_zero_has_one_digest() -> None:
    signs = row_digests(np.array([[0.0, -1.0], [-0.0, -1.0], [0.0, 1.0]]))
    assert signs[0] == signs[1] != signs[2]


def test_smallest_change_in_float32_makes_another_row() -> None:
    rows = np.array([[1.0, 2.0], [1.0, np.nextafter(np.float32(2), np.float32(3))]])
    assert len(set(row_digests(rows).tolist())) == 2


def test_stored_digests_are_sorted_and_different() -> None:
    digests = np.array([2**64 - 1, 3, 3, 1], np.uint64)
    assert decode_digests(encode_digests(digests)).tolist() == [1, 3, 2**64 - 1]
    assert len(encode_digests(digests)) == 24


def test_rounding_to_float32_keeps_the_digest() -> None:
    logits, _ = draw(100, 5, 1.0)
    assert (logits != logits.astype(np.float32)).any()
    np.testing.assert_array_equal(row_digests(logits), row_digests(logits.astype(np.float32)))


def test_new_rows_of_two_classes_equal_others_by_chance() -> None:
    """They are one number of float32; rows of more classes are not equal by chance."""
    rng, rows = np.random.default_rng(0), 20_000
    odds = rng.normal(0, 2, (2, rows))
    first, second = (row_digests(np.stack([-z / 2, z / 2], axis=1)) for z in odds)
    equal = int(np.isin(first, second).sum())
    assert equal > 0
    assert may_be_chance(equal, rows, 2)
    assert not may_be_chance(equal, rows, 3)
    assert not may_be_chance(rows // 50, rows, 2)


def test_scores_of_few_values_do_not_tell_rows_apart() -> None:
    values = np.arange(100, dtype=np.float64)[:, None] * [1.0, -1.0]
    assert are_distinct(row_digests(values.repeat(4, axis=0)))
    assert not are_distinct(row_digests(values.repeat(5, axis=0)))
