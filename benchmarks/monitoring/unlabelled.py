"""`python -m benchmarks.monitoring.unlabelled`: states of streams with traffic that has no labels.

Every stream has confidences of a binary classifier with normal log-odds, N(1.5, 1.5²), 15 bins at
their quantiles, and the default options of `Monitor`. A state that is *fresh* while the error of
all traffic exceeds the objective, or after a whole window without labels of a part, is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.drift import ClassTraffic, Cohort, Monitor, MonitorOptions

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

_HOUR = 3_600.0
_LIMIT = 0.7
#: How far accuracy is below confidence in the traffic without labels.
_OFF = 0.15
_WINDOW = 4_000
#: Confidence level of the reported bounds.
_LEVEL = 0.95


class _Scene(NamedTuple):
    """A kind of stream."""

    #: Predictions of a cohort, cohorts, and segments or predicted classes.
    rows: int
    cohorts: int
    parts: int
    #: Return which predictions get labels, from confidences (N,), segments or predicted classes
    #: (N,), the cohort's number and draws from [0, 1) (N,).
    labelled: Callable[[Values, NDArray[np.intp], int, Values], Flags]
    #: Return the accuracy of each prediction from its confidence.
    accuracy: Callable[[Values], Values]
    #: Whether the last state has to be fresh, rather than anything else. Earlier states of such
    #: streams are not read.
    is_fresh: bool
    #: Whether the parts are predicted classes, which are all watched.
    has_classes: bool = False


def _calibrated(p: Values) -> Values:
    return p


def _off_above(p: Values) -> Values:
    return np.where(p < _LIMIT, p, p - _OFF)


#: Labels stop after this number of cohorts.
_STOP = 10

SCENES: Mapping[str, _Scene] = {
    "labels below .7 only, the rest 15 points off": _Scene(
        2_500, 10, 0, lambda p, s, i, u: p < _LIMIT, _off_above, False
    ),
    "labels at random of 1%": _Scene(40_000, 12, 0, lambda p, s, i, u: u < 0.01, _calibrated, True),
    "labels at random of 30%, 100 segments": _Scene(
        2_000, 10, 100, lambda p, s, i, u: u < 0.3, _calibrated, True
    ),
    "labels above .9 stop half way": _Scene(
        1_000, 22, 0, lambda p, s, i, u: (i < _STOP) | (p < 0.9), _calibrated, False
    ),
    "labels of one of five segments stop half way": _Scene(
        1_000, 22, 5, lambda p, s, i, u: (i < _STOP) | (s > 0), _calibrated, False
    ),
    "labels of one of five predicted classes stop half way": _Scene(
        1_000, 22, 5, lambda p, s, i, u: (i < _STOP) | (s > 0), _calibrated, False, True
    ),
    "labels at random of 30%, five predicted classes": _Scene(
        2_000, 10, 5, lambda p, s, i, u: u < 0.3, _calibrated, True, True
    ),
}


class Outcome(NamedTuple):
    """What happened to the streams of a kind."""

    #: Streams; those whose last state is fresh; those ever fresh; those whose last interval of ECE
    #: contains the error of all traffic.
    streams: int
    fresh_at_end: int
    ever_fresh: int
    covered: int


def measure(scene: _Scene, streams: int, seed: int = 0) -> Outcome:
    """Run the streams of a kind."""
    states, covered = [], 0
    for number in range(streams):
        state, hit = _run(scene, np.random.default_rng([seed, number]))
        states.append(state)
        covered += hit
    ends = sum(state[-1] == "fresh" for state in states)
    ever = sum("fresh" in state for state in states)
    return Outcome(streams, ends, ever, covered)


def _run(scene: _Scene, rng: np.random.Generator) -> tuple[list[str], bool]:
    """Return the states that are read, and whether the last interval has the true error."""
    edges = np.quantile(_confidences(rng, 5_000), np.arange(1, 15) / 15)
    segments = 0 if scene.has_classes else scene.parts
    classes = tuple(range(scene.parts)) if scene.has_classes else ()
    options = MonitorOptions(window_labels=_WINDOW, segments=segments, classes=classes)
    monitor = Monitor(edges, options=options)
    states = []
    for number in range(scene.cohorts):
        p = _confidences(rng, scene.rows)
        correct = (rng.random(scene.rows) < scene.accuracy(p)).astype(np.float64)
        part = rng.integers(max(scene.parts, 1), size=scene.rows)
        has_label = scene.labelled(p, part, number, rng.random(scene.rows))
        cohorts = {
            str(name) if segments else "": _cohort(
                edges, p, correct, has_label, part == name if segments else np.ones_like(has_label)
            )
            for name in range(max(segments, 1))
        }
        start = number * _HOUR
        traffic = _class_traffic(classes, p, correct, has_label, part) if classes else None
        monitor.add(start, start + _HOUR, cohorts, class_traffic=traffic)
        # With many segments, most of the time goes into assessments.
        if number + 1 == scene.cohorts or not scene.is_fresh:
            status = monitor.assess(start + _HOUR)
            states.append(status.state)
    low, high = status.evidence.ece_low, status.evidence.ece_high
    true = _true_error(scene.accuracy, edges)
    return states, low is not None and high is not None and low <= true <= high


def _confidences(rng: np.random.Generator, rows: int) -> Values:
    p = scipy.special.expit(rng.normal(1.5, 1.5, size=rows))
    return np.maximum(p, 1 - p)


def _cohort(edges: Values, p: Values, correct: Values, has_label: Flags, part: Flags) -> Cohort:
    where = np.searchsorted(edges, p[part], side="right")
    chosen = part & has_label
    return Cohort(np.bincount(where, minlength=len(edges) + 1), p[chosen], correct[chosen])


def _class_traffic(
    classes: tuple[int, ...],
    p: Values,
    correct: Values,
    has_label: Flags,
    predicted: NDArray[np.intp],
) -> ClassTraffic:
    counts = np.bincount(predicted, minlength=len(classes))
    errors = np.bincount(predicted, np.maximum(p, 1 - p), len(classes))
    labelled = predicted[has_label], correct[has_label], p[has_label]
    return ClassTraffic.from_rows(classes, counts, errors, len(p), *labelled)


def _true_error(accuracy: Callable[[Values], Values], edges: Values) -> float:
    """Return the ECE of all traffic in these bins, from the distribution's quantiles."""
    p = scipy.special.expit(1.5 + 1.5 * scipy.special.ndtri((np.arange(200_000) + 0.5) / 200_000))
    p = np.maximum(p, 1 - p)
    where = np.searchsorted(edges, p, side="right")
    return float(np.abs(np.bincount(where, accuracy(p) - p)).sum() / len(p))


def interval(hits: int, draws: int) -> str:
    """Return the exact (Clopper-Pearson) interval of a share."""
    low, high = scipy.stats.binomtest(hits, draws).proportion_ci(_LEVEL)
    return f"{hits / draws:7.1%} ({low:.1%} to {high:.1%})"


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="of each kind")
    args = parser.parse_args()
    met = True
    print(f"{args.streams} streams of each kind; shares with exact {_LEVEL:.0%} intervals")
    for name, scene in SCENES.items():
        outcome = measure(scene, args.streams)
        count = outcome.streams
        print(f"{name}\n  fresh at the end   {interval(outcome.fresh_at_end, count)}")
        print(f"  ever fresh         {interval(outcome.ever_fresh, count)}")
        print(f"  interval has ECE   {interval(outcome.covered, count)}", flush=True)
        met &= outcome.covered >= 0.95 * count
        met &= outcome.fresh_at_end >= 0.9 * count if scene.is_fresh else not outcome.fresh_at_end
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
