"""`python -m benchmarks.monitoring.binary`: drifts of two classes, found by P(y = 1).

A classifier of two classes has normal log-odds of standard deviation 2, whose mean gives the
frequency of class 1. Then the odds of class 1 are multiplied by a factor, as after a shift of the
base rate or a fit on resampled rows, and the rows come from the shifted population; or the true
log-odds are smaller. Streams drift from the first label or after 5,137 calibrated labels. The test
of P(y = 1) and y reads them, and the test of the confidence and whether the predicted class is
right, which never sees a shift of the base rate of balanced classes: accuracy stays the confidence.

The bound is that of `benchmarks.monitoring.bound`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy
import scipy.stats
from numpy.typing import NDArray

from benchmarks.monitoring.bound import Drift, first_alarm
from benchmarks.monitoring.unlabelled import interval
from recalib.drift import CalibrationTest, default_bettors
from recalib.drift.target import Target, values_of_predicted_class

Values = NDArray[np.float64]

_ALPHA, _TOLERANCE = 0.05, 0.02
_RATES = (0.5, 0.1, 0.02)
_ONSETS = (0, 5_137)
_ROWS, _SPREAD = 40_000, 2.0
#: Streams end at this multiple of the bound, and this many labels later.
_LENGTH, _MORE = 5, 200
_NULL_LABELS = 20_000
#: Less probable at a rate of α: the exact 95% interval is above α.
_UNLUCKY = 0.025
#: The goal for the median in bounds, of drifts that take more labels than a block of the test.
_GOAL, _LEAST_BOUND = 3.0, 30.0


class Scene(NamedTuple):
    """A drift: the factor of the odds of class 1, and the slope of the true log-odds."""

    odds: float = 1.0
    slope: float = 1.0


SCENES: Mapping[str, Scene] = {
    "odds x 2": Scene(2.0),
    "odds / 2": Scene(0.5),
    "odds x 4": Scene(4.0),
    "odds / 50": Scene(1 / 50),
    "T x 1.5": Scene(slope=1 / 1.5),
}
#: Frequency minus P(y = 1) of streams within the tolerance; None: it turns at label 5,137.
NULLS: Mapping[str, float | None] = {
    "exactly right": 0.0,
    "2% too high": -_TOLERANCE,
    "2% too low": _TOLERANCE,
    "2%, turns": None,
}


def population(rate: float) -> Values:
    """Return values of P(y = 1) with this mean, (M,), equally likely."""
    odds = _SPREAD * np.random.default_rng(17).standard_normal(_ROWS)

    def excess(mean: float) -> float:
        return float(scipy.special.expit(mean + odds).mean()) - rate

    p: Values = scipy.special.expit(scipy.optimize.brentq(excess, -20, 20) + odds)
    return p


def drift(p: Values, scene: Scene) -> Drift:
    """Return the rows after a drift: if the base rate shifts, classes have other weights."""
    truth = scipy.special.expit(scene.slope * scipy.special.logit(p) + np.log(scene.odds))
    weights = (scene.odds - 1) * p + 1  # of P(x | y), in the population of the new base rate
    rows = np.random.default_rng(18).choice(len(p), len(p), p=weights / weights.sum())
    return Drift(p[rows], truth[rows])


class Delays(NamedTuple):
    """Labels from the onset to the alarm of each stream, infinite without one, (S,)."""

    positive: Values
    top_label: Values
    #: Streams with an alarm of the test of P(y = 1) before the onset.
    early: int


def measure(p: Values, change: Drift, onset: int, streams: int) -> Delays:
    """Return the delays of both tests on the same streams."""
    length = int(_LENGTH * change.bound()) + _MORE
    alarms = np.full((2, streams), np.inf)
    for seed in range(streams):
        rng = np.random.default_rng([seed, onset])
        before = p[rng.integers(len(p), size=onset)]
        rows = rng.integers(len(change.confidences), size=length)
        values = np.concatenate([before, change.confidences[rows]])
        truth = np.concatenate([before, change.truth[rows]])
        y = (rng.random(len(truth)) < truth).astype(np.float64)
        predicted = values > 0.5
        # The complement is its own inverse: from class 1 to the predicted class.
        top = (values_of_predicted_class(part, predicted, "positive_class") for part in (values, y))
        alarms[:, seed] = _alarm(values, y), _alarm(*top, target="top_label")
    late = alarms[0] > onset
    return Delays(alarms[0, late] - onset, alarms[1] - onset, int(np.sum(~late)))


def false_alarms(p: Values, off: float | None, streams: int) -> int:
    """Return how many streams of 20,000 labels within the tolerance raise an alarm."""
    alarms = 0
    for seed in range(streams):
        rng = np.random.default_rng([seed, 11])
        values = p[rng.integers(len(p), size=_NULL_LABELS)]
        turns = np.where(np.arange(_NULL_LABELS) < _ONSETS[1], _TOLERANCE, -_TOLERANCE)
        truth = np.clip(values + (turns if off is None else off), 0, 1)
        alarms += np.isfinite(_alarm(values, (rng.random(_NULL_LABELS) < truth).astype(float)))
    return alarms


def _alarm(p: Values, y: Values, target: Target = "positive_class") -> float:
    return first_alarm(p, y, CalibrationTest(_ALPHA, _TOLERANCE, default_bettors(target)))


def _text(labels: float) -> str:
    return "never" if np.isinf(labels) else f"{labels:,.0f}"


def _table(rate: float, streams: int) -> tuple[str, bool]:
    """Return the table of a frequency of class 1, and whether the goals are met."""
    p, met = population(rate), True
    heads = ("bound", "P(y = 1)", "/ bound", "early", "top label")
    lines = [
        f"class 1 in {rate:.0%} of rows: median labels from the onset to the alarm",
        f"{'drift':12}{'onset':>7}" + "".join(f"{head:>10}" for head in heads) + "  found",
    ]
    for name, scene in SCENES.items():
        change = drift(p, scene)
        bound = change.bound()
        for onset in _ONSETS:
            delays = measure(p, change, onset, streams)
            median, top = np.median(delays.positive), np.median(delays.top_label)
            met &= bool(median <= _GOAL * bound) or bound < _LEAST_BOUND
            share = np.isfinite(delays.top_label).mean()
            lines.append(
                f"{name:12}{onset:>7,}{bound:10,.0f}{_text(median):>10}{median / bound:10.2f}"
                f"{delays.early:>10}{_text(top):>10}{share:7.0%}"
            )
    lines.append(f"false alarms in {_NULL_LABELS:,} labels")
    for null, off in NULLS.items():
        alarms = false_alarms(p, off, streams)
        met &= bool(scipy.stats.binom.sf(alarms - 1, streams, _ALPHA) > _UNLUCKY)
        lines.append(f"{null:16}{interval(alarms, streams)}")
    return "\n".join(lines), met


def main() -> None:
    """Print the tables; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100, help="of each kind")
    parser.add_argument("--processes", type=int, default=len(_RATES))
    args = parser.parse_args()
    met = True
    print(f"{args.streams} streams of each kind; tolerance {_TOLERANCE:.0%}, alpha {_ALPHA:.0%}")
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for text, is_met in pool.imap(partial(_table, streams=args.streams), _RATES):
            print(f"\n{text}", flush=True)
            met &= is_met
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
