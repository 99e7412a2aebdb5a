"""Processor time per label, and detection of labels selected by outcome."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.monitoring.streams import stream
from recalib.drift import CalibrationSums, CalibrationTest, label_coverage

_EDGES = np.arange(1, 15) / 15
_TRAFFIC, _BULK = 5_000, 100_000


def microseconds_per_label() -> float:
    """Return the CPU time of the test and the sums, in batches of 1,000; minimum of five runs."""
    streams = [stream("calibrated", seed) for seed in range(7)]
    p, y = (np.concatenate(columns)[:_BULK] for columns in zip(*streams, strict=True))
    seconds = []
    for _ in range(5):
        test, sums = CalibrationTest(), CalibrationSums.empty(_EDGES)
        started = time.thread_time()
        for start in range(0, _BULK, 1_000):
            rows = slice(start, start + 1_000)
            test.update(p[rows], y[rows])
            sums.add_labels(p[rows], y[rows])
        seconds.append(time.thread_time() - started)
    return min(seconds) / _BULK * 1e6


def flags(streams: int) -> dict[str, float]:
    """Return how often label rates are flagged, for 5,000 predictions of a calibrated model."""
    counts = dict.fromkeys(("every third", "the less sure more", "all errors, 80% of the rest"), 0)
    for seed in range(streams):
        rng = np.random.default_rng([seed, 5])
        p = stream("calibrated", seed)[0][:_TRAFFIC]
        y = rng.random(_TRAFFIC) < p
        rates = (np.full(_TRAFFIC, 1 / 3), 1.1 - p, np.where(y, 0.8, 1.0))
        for name, rate in zip(counts, rates, strict=True):
            sums = CalibrationSums.empty(_EDGES)
            sums.add_traffic(p)
            is_labelled = rng.random(_TRAFFIC) < rate
            sums.add_labels(p[is_labelled], y[is_labelled])
            coverage = label_coverage(sums)
            counts[name] += coverage is not None and coverage.selective
    return {name: count / streams for name, count in counts.items()}
