"""Applying a map: against a copy of the same memory, and one row by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import recalib
from benchmarks.timing import Goal, best_of, interleaved
from recalib.calibrator import Calibrator
from recalib.maps import MAPS

__all__ = ["run"]


def run() -> Iterator[Goal]:
    """Measure onnxruntime on 10,000 x 1000 float32, and on one row of 10 classes."""
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(10_000, 1000)) * 3).astype(np.float32)
    labels = rng.integers(0, 1000, 500)
    for name in MAPS:
        calibrator = recalib.fit(logits[:500], labels, name)
        session = calibrator.session
        feed = {"logits": logits}
        seconds = interleaved(
            {"copy": logits.copy, "map": lambda s=session, f=feed: s.run(None, f)}, 15
        )
        ratio = min(seconds["map"]) / min(seconds["copy"])
        # The goal is temperature's; the others are measured beside it.
        limit = 2.0 if name == "temperature" else float("inf")
        yield Goal(f"apply {name}, 10,000x1000, over memory copy", ratio, limit, True)
    yield _one_row(rng)


def _one_row(rng: np.random.Generator) -> Goal:
    logits = (rng.normal(size=(500, 10)) * 3).astype(np.float32)
    calibrator: Calibrator = recalib.fit(logits, rng.integers(0, 10, 500))
    calibrator.start_session(threads=1)
    session, feed = calibrator.session, {"logits": logits[:1]}

    def thousand() -> None:
        for _ in range(1000):
            session.run(None, feed)

    microseconds = best_of(thousand, 9) * 1e3
    return Goal("one row of 10 classes, microseconds", microseconds, 15.0, True)
