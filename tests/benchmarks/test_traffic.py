"""The bound on the storage of a day's traffic."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.traffic import counting_seconds, day
from recalib.registry import MAX_SEGMENTS

pytestmark = pytest.mark.slow


def test_storage_grows_with_buckets_and_not_with_traffic(tmp_path: Path) -> None:
    """10^9 predictions a day take as many rows as 10^8; many segments still take little."""
    folders = [tmp_path / str(n) for n in range(2)]
    for folder in folders:
        folder.mkdir()
    busy, quiet = day(folders[0], 9), day(folders[1], 9, 10**8)
    assert busy["rows"] == quiet["rows"] == 288 * 10 * 15
    assert busy["rows_after_two_days"] == 24 * 10 * 15
    # Linear in segments: the maximum takes about ten times this.
    assert busy["megabytes"] * (MAX_SEGMENTS + 1) / 10 < 50


def test_counts_equal_the_answered_rows() -> None:
    assert counting_seconds(3, 10, 500) > 0
