"""`python -m benchmarks.monitoring.silence`: states of streams whose labels stop or become rare.

Every stream has confidences of a binary classifier with normal log-odds, N(1.5, 1.5²), 15 bins at
their quantiles, and the default options of `Monitor`. A drift of 20 points begins with the change
of the label rate, so an interval that speaks for labelled predictions alone is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import Cohort, Monitor, MonitorOptions, Status

_HOUR = 3_600.0
_OFF = 0.2
#: Statuses that are read of a stream.
_READ = 20


class _Scene(NamedTuple):
    """A kind of stream."""

    #: Predictions of a cohort, its length in seconds, and cohorts.
    rows: int
    seconds: float
    cohorts: int
    #: The cohort from which on the rate is another and accuracy is 20 points lower; None: never.
    change: int | None
    #: Return the label rate from the number of the cohort.
    rate: Callable[[int], float]
    #: Whether a time is silent at the end.
    is_silent: bool
    #: `label_pause_seconds`.
    pause: float = 0.0


def _by_day(number: int) -> float:
    """Return 40% by day and 0 by night, of hours."""
    return 0.4 if number % 24 < 12 else 0.0


SCENES: Mapping[str, _Scene] = {
    "labels stop": _Scene(1_000, _HOUR, 40, 20, lambda i: 0.5 if i < 20 else 0.0, True),
    "labels drop from 50% to 2%": _Scene(
        1_000, _HOUR, 40, 20, lambda i: 0.5 if i < 20 else 0.02, False
    ),
    "labels at random of 1%, a third of cohorts without any": _Scene(
        100, 300.0, 2_016, None, lambda i: 0.01, False
    ),
    "no labels at night, declared": _Scene(500, _HOUR, 120, None, _by_day, False, 12 * _HOUR),
    "no labels at night, not declared": _Scene(500, _HOUR, 120, None, _by_day, True),
}


class Outcome(NamedTuple):
    """What happened to the streams of a kind."""

    streams: int
    #: Streams that ever have a silent time, before the change if there is one.
    false_alarms: int
    #: Streams with a silent time at the end.
    silent_at_end: int
    #: Streams ever fresh, and those fresh while a tenth of the window is silent, or its ECE is
    #: above the objective.
    ever_fresh: int
    fresh_too_long: int
    #: Intervals since the change, one a stream at a random cohort, that have the ECE.
    covered: int


def measure(scene: _Scene, streams: int, seed: int = 0) -> Outcome:
    """Run the streams of a kind."""
    counts = np.zeros(5, np.int64)
    for number in range(streams):
        counts += _run(scene, np.random.default_rng([seed, number]))
    return Outcome(streams, *counts.tolist())


def _run(scene: _Scene, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the counts of an `Outcome` for one stream."""
    edges = np.quantile(_confidences(rng, 5_000), np.arange(1, 15) / 15)
    monitor = Monitor(edges, options=MonitorOptions(label_pause_seconds=scene.pause))
    change = scene.cohorts if scene.change is None else scene.change
    alarm = fresh = too_long = False
    every = max(scene.cohorts // _READ, 1)
    first = change if scene.change is not None else scene.cohorts // 2
    read = rng.integers(first, scene.cohorts)
    for number in range(scene.cohorts):
        end = (number + 1) * scene.seconds
        cohort = _cohort(rng, edges, scene, number, change)
        monitor.add(end - scene.seconds, end, cohort)
        is_read, is_last = number == read, number + 1 == scene.cohorts
        if not (is_read or is_last or number % every == 0):
            continue
        status = monitor.assess(end)
        share = _drifted(status, scene, number, change)
        alarm |= status.evidence.silent > 0 and number < change
        fresh |= status.state == "fresh"
        is_wrong = status.evidence.silent >= 0.1 or share * _OFF > MonitorOptions.objective
        too_long |= status.state == "fresh" and is_wrong
        if is_read:
            low, high = status.evidence.ece_low, status.evidence.ece_high
            hit = low is not None and high is not None and low <= share * _OFF <= high
    return np.array([alarm, status.evidence.silent > 0, fresh, too_long, hit], np.int64)


def _confidences(rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    p = 1 / (1 + np.exp(-rng.normal(1.5, 1.5, size=rows)))
    return np.maximum(p, 1 - p)


def _cohort(
    rng: np.random.Generator, edges: NDArray[np.float64], scene: _Scene, number: int, change: int
) -> Cohort:
    p = _confidences(rng, scene.rows)
    correct = rng.random(scene.rows) < p - _OFF * (number >= change)
    labelled = rng.random(scene.rows) < scene.rate(number)
    where = np.searchsorted(edges, p, side="right")
    return Cohort(np.bincount(where, minlength=len(edges) + 1), p[labelled], correct[labelled])


def _drifted(status: Status, scene: _Scene, number: int, change: int) -> float:
    """Return the share of the window with the drift."""
    start = status.evidence.window_start
    if start is None:
        return 0.0
    first = int(start // scene.seconds)
    return max(number + 1 - max(change, first), 0) / (number + 1 - first)


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100, help="of each kind")
    args = parser.parse_args()
    met = True
    print(f"{args.streams} streams of each kind; shares with exact 95% intervals")
    for name, scene in SCENES.items():
        outcome = measure(scene, args.streams)
        count = outcome.streams
        print(f"{name}\n  interval has ECE     {interval(outcome.covered, count)}")
        if not scene.is_silent or scene.change is not None:
            print(f"  false silence        {interval(outcome.false_alarms, count)}")
            met &= outcome.false_alarms <= 0.05 * count
        print(f"  silent at the end    {interval(outcome.silent_at_end, count)}")
        print(f"  ever fresh           {interval(outcome.ever_fresh, count)}")
        print(f"  fresh in error       {interval(outcome.fresh_too_long, count)}", flush=True)
        met &= outcome.covered >= 0.95 * count and not outcome.fresh_too_long
        met &= outcome.silent_at_end == (count if scene.is_silent else 0)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
