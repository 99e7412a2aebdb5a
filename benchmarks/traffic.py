"""The cost of traffic counts: rows and bytes per day, and time per request.

`python -m benchmarks.traffic` counts a day of 10^9 predictions of one model, with the largest
number of segments, as server processes would write them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from recalib.core.card import Card, ConfidenceHistogram, DataSummary, FitSummary
from recalib.registry import MAX_SEGMENTS, Model, MonitoringSettings, Registry, TrafficCount
from recalib.settings import Settings
from service.serving.traffic import Traffic

_BINS = 15
_DAY = 86_400


def day(folder: Path, segments: int, predictions: int = 10**9) -> dict[str, float]:
    """Write the counts of a day to SQLite; return rows and megabytes, before and after merging."""
    registry = Registry(f"sqlite:///{folder / 'recalib.db'}", (folder / "blobs").as_uri())
    registry.migrate()
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 10, "anna")
    bucket = Settings.model_fields["bucket_seconds"].default
    cells = _DAY // bucket * (segments + 1) * _BINS
    counts = np.random.default_rng(0).multinomial(predictions, np.full(cells, 1 / cells))
    before = _size(registry)
    counted = [
        TrafficCount(model.id, 1, place // ((segments + 1) * _BINS) * bucket,
                place // _BINS % (segments + 1), place % _BINS, count, count, count / 1.1)
        for place, count in enumerate(counts.tolist())
    ]  # fmt: skip
    for start in range(0, len(counted), 50_000):
        with registry.transaction() as tx:
            tx.traffic.add(counted[start : start + 50_000])
    with registry.reading() as tx:
        stored = tx.traffic.between(model, 1, 0, 1e11)
    assert sum(row.predictions for row in stored) == predictions
    bytes_written = _size(registry) - before
    with registry.transaction() as tx:
        tx.traffic.compact(model, {None: float(_DAY)}, 3_600)
    with registry.reading() as tx:
        hours = len(tx.traffic.between(model, 1, 0, 1e11))
    registry.close()
    return {
        "predictions": predictions,
        "segments": segments,
        "rows": len(stored),
        "megabytes": bytes_written / 1e6,
        "rows_after_two_days": hours,
    }


def counting_seconds(rows: int, classes: int, requests: int = 20_000) -> float:
    """Return the seconds per request for counting, including merging; the minimum of 5 runs."""
    bins = ConfidenceHistogram(tuple((np.arange(1, _BINS) / _BINS).tolist()), (1,) * _BINS)
    card = Card(
        map="identity", objective="nll", classes=classes, library="0", created_at="",
        data=DataSummary(1), fit=FitSummary(0.0, 0, True, 0.0), confidences=bins,
    )  # fmt: skip
    model = Model(1, "m", classes, None, 1, "anna", 0.0, MonitoringSettings())
    answer = np.random.default_rng(0).dirichlet(np.ones(classes), rows).astype(np.float32)
    lowest = np.inf
    for _ in range(5):
        traffic = Traffic()
        stream = traffic.stream(model, 1, card)
        started = time.perf_counter()
        for _ in range(requests):
            stream.add(answer)
        counted = traffic.take().traffic
        lowest = min(lowest, (time.perf_counter() - started) / requests)
        assert sum(row.predictions for row in counted) == rows * requests
    return float(lowest)


def _size(registry: Registry) -> int:
    """Return the size of the rows in bytes, without free pages and the log."""
    with registry.reading() as tx:
        ask = tx.connection.exec_driver_sql
        pages, free, size = (
            ask(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object, for machines")
    wants_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        days = [day(Path(first), 0), day(Path(second), MAX_SEGMENTS)]
    costs = {
        f"{rows}x{classes}": counting_seconds(rows, classes, 20_000 if rows == 1 else 2_000) * 1e6
        for rows, classes in ((1, 10), (32, 1000))
    }
    if wants_json:
        print(json.dumps({"days": days, "counting_microseconds": costs}))
        return
    for figures in days:
        print(
            f"a day of {figures['predictions']:,} predictions, {figures['segments']} segments: "
            f"{figures['rows']:,} rows, {figures['megabytes']:.1f} MB; "
            f"{figures['rows_after_two_days']:,} rows after two days"
        )
    for shape, cost in costs.items():
        print(f"counting takes {cost:.2f} us of a request of {shape}")


if __name__ == "__main__":
    main()
