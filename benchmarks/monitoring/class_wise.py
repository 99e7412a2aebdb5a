"""`python -m benchmarks.monitoring.class_wise`: alarms of class-wise monitoring.

Every stream has 6,000 labels and ten classes, of normal logits with standard deviation 1.5. It is
read in cohorts of 250 by `ClassMonitor`, and by the test of the top label beside it, each with its
half of α = 5%. Then the cost of a label and the size of the state, for up to 1,000 classes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import CalibrationTest, ClassMonitor, ClassRows

Values = NDArray[np.float64]
Labels = NDArray[np.int64]

_CLASSES, _LABELS, _COHORT = 10, 6_000, 250
_TOLERANCE, _ALPHA = 0.02, 0.05
_SUSPICION = 10.0


class _Scene(NamedTuple):
    """A kind of stream."""

    #: Return the true probabilities (N, K) from those of the calibrator.
    truth: Callable[[Values], Values]
    #: Whether every class is within the tolerance.
    is_null: bool
    #: The share of streams with an error whose alarm is a goal.
    min_share: float = 0.95


def _calibrated(p: Values) -> Values:
    return p


def _tolerated(p: Values) -> Values:
    """Move the whole tolerance from class 1 to class 0, where the probabilities allow it."""
    moved = np.minimum(_TOLERANCE, np.minimum(p[:, 1], 1 - p[:, 0]))
    truth = p.copy()
    truth[:, 0] += moved
    truth[:, 1] -= moved
    return truth


def _swap(p: Values) -> Values:
    """Exchange classes 0 and 1 where neither is the top label."""
    truth, others = p.copy(), p.argmax(axis=1) > 1
    truth[others, :2] = p[others, 1::-1]
    return truth


def _opposite(p: Values, points: float) -> Values:
    """Let class 0 be right less often and class 1 more often, where predicted."""
    truth, top = p.copy(), p.argmax(axis=1)
    for label, gap in ((0, -points), (1, points)):
        rows = top == label
        confidence = np.clip(p[rows, label] + gap, 0.01, 0.99)
        truth[rows] *= ((1 - confidence) / (1 - p[rows, label]))[:, None]
        truth[rows, label] = confidence
    return truth


SCENES: Mapping[str, _Scene] = {
    "calibrated": _Scene(_calibrated, is_null=True),
    "two classes off by the tolerance": _Scene(_tolerated, is_null=True),
    "two classes exchanged below the top label": _Scene(_swap, is_null=False),
    "one class 20 points too sure, one not sure enough": _Scene(
        partial(_opposite, points=0.2), is_null=False
    ),
    "one class 10 points too sure, one not sure enough": _Scene(
        partial(_opposite, points=0.1), is_null=False, min_share=0.0
    ),
}


class Outcome(NamedTuple):
    """Alarms in the streams of a kind."""

    streams: int
    #: Streams in which the classes raise an alarm, and in which the top label does.
    class_wise: int
    top_label: int
    #: Alarms with a named class, and those that name only a class of the error.
    named: int
    named_right: int
    #: Labels at each alarm of the classes, at the end of its cohort.
    delays: list[int]


def measure(scene: _Scene, streams: int, seed: int = 0, labels: int = _LABELS) -> Outcome:
    """Run the streams of a kind; a stream ends when both have raised an alarm."""
    class_wise = top_label = named = named_right = 0
    delays = []
    for number in range(streams):
        rng = np.random.default_rng([seed, number])
        classes = _monitor(range(_CLASSES))
        top = CalibrationTest(alpha=_ALPHA / 2, tolerance=_TOLERANCE)
        for start in range(0, labels, _COHORT):
            p = draw(rng, _COHORT, _CLASSES)
            y = draw_labels(rng, scene.truth(p))
            if not classes.evidence().rejected:
                rows = ClassRows.from_probabilities(p, y, np.zeros(_COHORT), range(_CLASSES))
                classes.add(start, start + _COHORT, rows)
            top.update(p.max(axis=1), p.argmax(axis=1) == y)
        evidence = classes.evidence()
        class_wise, top_label = class_wise + evidence.rejected, top_label + top.rejected
        if evidence.rejected and evidence.rejected_time is not None:
            delays.append(int(evidence.rejected_time))
            names = {gap.class_index for gap in evidence.worst if gap.rejected}
            named += bool(names)
            named_right += bool(names) and names <= {0, 1}
    return Outcome(streams, class_wise, top_label, named, named_right, delays)


def draw(rng: np.random.Generator, rows: int, classes: int, scale: float = 1.5) -> Values:
    """Return the probabilities of normal logits, (N, K)."""
    return scipy.special.softmax(rng.normal(scale=scale, size=(rows, classes)), axis=1)


def draw_labels(rng: np.random.Generator, probabilities: Values) -> Labels:
    """Return a label of each row, (N,)."""
    below = probabilities.cumsum(axis=1) < rng.random((len(probabilities), 1))
    return np.minimum(below.sum(axis=1), probabilities.shape[1] - 1)


class Cost(NamedTuple):
    """The cost of a number of classes."""

    classes: int
    #: Entries of a row, microseconds of processor time a row, and bytes of the stored state.
    entries: float
    microseconds: float
    state_bytes: int


def cost(classes: int, rows: int = 5_000) -> Cost:
    """Return the cost of rows of sharp probabilities (logits of standard deviation 4)."""
    rng = np.random.default_rng(0)
    monitor = _monitor(range(classes))
    entries, seconds = 0, 0.0
    for start in range(0, rows, 1_000):
        p = draw(rng, 1_000, classes, 4.0)
        labels = draw_labels(rng, p)
        begin = time.process_time()
        part = ClassRows.from_probabilities(p, labels, np.zeros(len(p)), range(classes))
        monitor.add(start, start + 1_000, part)
        seconds += time.process_time() - begin
        entries += part.probabilities.nnz
    size = len(json.dumps(monitor.state()))
    return Cost(classes, entries / rows, seconds / rows * 1e6, size)


def _monitor(classes: range) -> ClassMonitor:
    return ClassMonitor(classes, alpha=_ALPHA / 2, tolerance=_TOLERANCE, suspicion=_SUSPICION)


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100, help="of each kind")
    args = parser.parse_args()
    met = True
    print(f"alarms within {_LABELS:,} labels, with exact 95% intervals")
    for name, scene in SCENES.items():
        outcome = measure(scene, args.streams)
        count = outcome.streams
        print(f"{name}\n  classes    {interval(outcome.class_wise, count)}", end="")
        if outcome.delays:
            print(f", after {np.median(outcome.delays):,.0f} labels in the median;", end=" ")
            print(f"{outcome.named} name classes, {outcome.named_right} only the right", end="")
        print(f"\n  top label  {interval(outcome.top_label, count)}", flush=True)
        limit = (_ALPHA if scene.is_null else scene.min_share) * count
        met &= outcome.class_wise <= limit if scene.is_null else outcome.class_wise >= limit
    for classes in (10, 100, 1_000):
        result = cost(classes)
        print(
            f"{classes:5,} classes: {result.entries:.1f} entries and {result.microseconds:.0f} us"
            f" a label, {result.state_bytes / 1e3:,.0f} kB of state"
        )
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
