"""The capacity benchmark at a small size."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.capacity import _of_labels, traffic_day
from benchmarks.databases import postgresql, sqlite
from recalib.registry import MAX_SEGMENTS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_labels_and_backup_have_a_size(name: str, tmp_path: Path) -> None:
    """A label has a digest of 16 bytes and five numbers of 8."""
    with ExitStack() as stack:
        database, other = (
            stack.enter_context(sqlite(tmp_path / place) if name == "sqlite" else postgresql())
            for place in ("one", "other")
        )
        sizes = _of_labels(tmp_path, database, other, 2_000)
    assert set(sizes) == {
        "label_bytes",
        "label_microseconds",
        "backup_label_bytes",
        "backup_million_labels_seconds",
        "restore_million_labels_seconds",
    }
    # Pages of 8 KiB count whole, indexes included.
    assert 45 < sizes["label_bytes"] < 400
    assert 16 < sizes["backup_label_bytes"] < sizes["label_bytes"]
    assert all(size > 0 for size in sizes.values())


def test_traffic_grows_with_buckets_and_not_with_predictions(tmp_path: Path) -> None:
    """10^9 predictions a day take as many rows as 10^8; many segments still take little."""
    days = []
    for predictions in (10**8, 10**9):
        with sqlite(tmp_path / f"{predictions}") as database:
            days.append(traffic_day(tmp_path / f"{predictions}", database, 9, predictions))
    quiet, busy = ({key.rpartition("segments_")[2]: day[key] for key in day} for day in days)
    assert busy["rows"] == quiet["rows"] == 288 * 10 * 15
    assert busy["merged_rows"] == 24 * 10 * 15
    # Linear in segments: the maximum takes about ten times this.
    assert busy["megabytes"] * (MAX_SEGMENTS + 1) / 10 < 50
