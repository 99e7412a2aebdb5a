"""`python -m benchmarks.monitoring.segment_search`: how often undeclared segments are found.

Every log has a text column of 20 values, an integer column of 10, and a number; the search tries 50
segments. Where there is an error, it is in 5% of the traffic, whose accuracy is 30 points below the
confidence: a value of the text column, or a range of the number that is no quantile group.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.replay import Log, SegmentSearch
from recalib.replay.segment_search import search_segments
from recalib.replay.splits import split_of

Values = NDArray[np.float64]

_ALPHA, _TOLERANCE, _OFF = 0.05, 0.02, 0.3
_COLUMNS = ("region", "model", "load")
#: 5% of the rows, which are not a group of 20 quantiles.
_FIRST, _LAST = 0.43, 0.48


class _Scene(NamedTuple):
    """A kind of log."""

    labels: int
    #: Return accuracy minus confidence from confidence, region (0 to 19) and load, (N,) each.
    gap: Callable[[Values, NDArray[np.int64], Values], Values]
    #: The column of the error, None without one.
    column: str | None


def _none(p: Values, region: NDArray[np.int64], load: Values) -> Values:
    return np.zeros(len(p))


def _tolerated(p: Values, region: NDArray[np.int64], load: Values) -> Values:
    return np.where(region % 2 == 0, _TOLERANCE, -_TOLERANCE)


def _region(p: Values, region: NDArray[np.int64], load: Values) -> Values:
    return np.where(region == 7, -_OFF, 0.0)


def _load(p: Values, region: NDArray[np.int64], load: Values) -> Values:
    return np.where((load >= _FIRST) & (load < _LAST), -_OFF, 0.0)


SCENES: Mapping[str, _Scene] = {
    "calibrated, 10,000 labels": _Scene(10_000, _none, None),
    "every region off by the tolerance, 10,000 labels": _Scene(10_000, _tolerated, None),
    "a region 30 points off, 4,000 labels": _Scene(4_000, _region, "region"),
    "a range 30 points off, 4,000 labels": _Scene(4_000, _load, "load"),
    "a range 30 points off, 10,000 labels": _Scene(10_000, _load, "load"),
}


class Outcome(NamedTuple):
    """What the search says about the logs of a kind."""

    logs: int
    #: Logs with any segment beyond the tolerance, and with the worst in the column of the error.
    alarms: int
    named: int
    #: Median interval of the worst segment.
    low: float
    high: float


def measure(scene: _Scene, logs: int, seed: int = 0) -> Outcome:
    """Search the logs of a kind."""
    alarms = named = 0
    intervals = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(logs):
            result = _search(scene, np.random.default_rng([seed, number]), Path(folder))
            worst = result.worst
            alarms += result.exceeding > 0
            if worst is not None:
                intervals.append((worst.low, worst.high))
                named += worst.exceeds_tolerance and worst.column == scene.column
    low, high = np.median(intervals, axis=0).tolist()
    return Outcome(logs, alarms, named, low, high)


def _search(scene: _Scene, rng: np.random.Generator, folder: Path) -> SegmentSearch:
    rows = scene.labels
    p = scipy.special.expit(rng.normal(1.5, 1.5, size=rows))
    p = np.maximum(p, 1 - p)
    region, load = rng.integers(0, 20, rows), rng.random(rows)
    correct = rng.random(rows) < p + np.clip(scene.gap(p, region, load), -p, 1 - p)
    table = {
        "time": np.arange(rows, dtype=np.float64),
        "confidence": p,
        "correct": correct,
        "region": pa.array([f"region {number}" for number in region]),
        "model": rng.integers(0, 10, rows),
        "load": load,
    }
    path = folder / "log.parquet"
    pq.write_table(pa.table(table), path)
    with Log(path, split_columns=_COLUMNS) as log:
        survey = log.survey()
        splits = [split_of(log.schema.field(name), survey.rows) for name in _COLUMNS]
        return search_segments(log, survey, splits, 0.0, alpha=_ALPHA, tolerance=_TOLERANCE)


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=400, help="logs of each kind")
    args = parser.parse_args()
    met = True
    print(f"{args.runs} logs of each kind; shares with exact 95% intervals")
    for name, scene in SCENES.items():
        outcome = measure(scene, args.runs)
        count = outcome.logs
        print(f"{name}\n  a segment is named   {interval(outcome.alarms, count)}", end="")
        if scene.column is None:
            met &= outcome.alarms <= _ALPHA * count
            print(flush=True)
            continue
        met &= outcome.named >= 0.95 * count
        print(f"\n  the right column     {interval(outcome.named, count)}", end="")
        print(f", median interval {outcome.low:+.1%} to {outcome.high:+.1%}", flush=True)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
