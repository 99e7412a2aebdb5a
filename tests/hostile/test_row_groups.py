"""The metadata of a Parquet file is checked before its rows are read."""

from __future__ import annotations

import io

import numpy as np
import pytest

from recalib.errors import InputError
from recalib.files import open_data, read
from tests.files.examples import column_table, example, parquet_of
from tests.hostile.bombs import claimed_columns, shared_pages


def test_row_groups_that_share_pages_are_rejected() -> None:
    """pyarrow alone returns 6,000 rows for this file of 2,000."""
    rows = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)
    data = read(io.BytesIO(shared_pages(rows, 1)), format="parquet", labels="optional")
    np.testing.assert_array_equal(data.logits, rows)
    with pytest.raises(InputError, match="column chunks that overlap"):
        read(io.BytesIO(shared_pages(rows, 3)), format="parquet", labels="optional")


def test_false_column_counts_are_rejected_before_allocation() -> None:
    with pytest.raises(InputError, match="Exceeded size limit"):
        open_data(io.BytesIO(claimed_columns(900_000)), format="parquet")


@pytest.mark.slow
def test_thousands_of_columns_in_many_row_groups_are_read() -> None:
    """The limit on lists in the footer does not reject valid files."""
    logits, labels = example(rows=12, classes=3000)
    content = parquet_of(column_table(logits, labels), row_group_size=3)
    data = read(io.BytesIO(content), format="parquet")
    np.testing.assert_array_equal(data.logits, logits)


def test_empty_row_groups_are_read() -> None:
    logits, labels = example(rows=4)
    content = parquet_of(column_table(logits, labels)[:0])
    with pytest.raises(InputError, match="no rows"):
        open_data(io.BytesIO(content), format="parquet")
