"""`python -m benchmarks.monitoring.selection`: intervals if labels are selected by outcome.

Windows of traffic with 15 bins at the quantiles of confidence, where right and wrong predictions
are labelled at different rates. It counts how often the interval of ECE, and the interval under an
assumed largest ratio of these rates, contain the ECE of all traffic. It then counts the states of
streams of calibrated predictions whose errors are labelled more often.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import CalibrationSums, Cohort, Monitor, MonitorOptions, Window, summarise_window

Values = NDArray[np.float64]

_BINS, _RANKS = 15, 200_000
_NORMAL = scipy.stats.norm(1.5, 1.5)
_GOAL = 0.95


def _quantiles(u: Values) -> Values:
    """Return quantiles of the confidence of a binary classifier with normal log-odds.

    The larger of two probabilities is at least `p` if the log-odds are outside (−x, x).
    """
    grid = np.linspace(0.5, 1, 4_001)[1:-1]
    x = scipy.special.logit(grid)
    return np.interp(u, _NORMAL.cdf(x) - _NORMAL.cdf(-x), grid)


def _sure(u: Values) -> Values:
    """Return quantiles of Beta(30, .6): most bins hold few errors."""
    return np.asarray(scipy.stats.beta(30, 0.6).ppf(u))


def _single(u: Values) -> Values:
    return np.full_like(u, 0.8)


def _slope(p: Values) -> Values:
    return 1 / (1 + ((1 - p) / np.maximum(p, 1e-12)) ** 0.7)


class Scene(NamedTuple):
    """A kind of window."""

    #: Predictions, quantiles of their confidences, and accuracy of each confidence.
    rows: int
    law: Callable[[Values], Values]
    accuracy: Callable[[Values], Values]
    #: Labelling rates of right and of wrong predictions.
    right: float
    wrong: float


SCENES: Mapping[str, Scene] = {
    "calibrated, no selection": Scene(8_000, _quantiles, lambda p: p, 0.5, 0.5),
    "calibrated, all errors, half of the rest": Scene(6_000, _quantiles, lambda p: p, 0.5, 1.0),
    "calibrated, errors three times": Scene(20_000, _quantiles, lambda p: p, 0.1, 0.3),
    "calibrated, errors a third": Scene(20_000, _quantiles, lambda p: p, 0.3, 0.1),
    "slope .7, errors half": Scene(6_000, _quantiles, _slope, 0.6, 0.3),
    # The error of these is at the upper or the lower end of the band.
    "20 points off, errors half": Scene(6_000, _quantiles, lambda p: p - 0.2, 0.6, 0.3),
    "20 points off, errors half, few labels": Scene(800, _quantiles, lambda p: p - 0.2, 0.6, 0.3),
    "10 points off, errors twice": Scene(6_000, _quantiles, lambda p: p - 0.1, 0.3, 0.6),
    "10 points off, errors twice, few labels": Scene(800, _quantiles, lambda p: p - 0.1, 0.3, 0.6),
    "sure, errors twice": Scene(8_000, _sure, lambda p: p, 0.3, 0.6),
    "sure and 2% off, errors half": Scene(8_000, _sure, lambda p: p - 0.02, 0.6, 0.3),
    "sure and 2% off, errors half, few labels": Scene(1_000, _sure, lambda p: p - 0.02, 0.6, 0.3),
    "a single confidence, errors twice": Scene(2_000, _single, lambda p: p, 0.3, 0.6),
    "a single confidence, 10 points off, errors half": Scene(
        2_000, _single, lambda p: p - 0.1, 0.6, 0.3
    ),
    "a single confidence, 10 points off, errors twice": Scene(
        2_000, _single, lambda p: p - 0.1, 0.3, 0.6
    ),
}


class Outcome(NamedTuple):
    """How many of the windows' intervals have the ECE of all traffic, and their mean ends."""

    true: float
    plain: int
    #: Under an assumed ratio equal to the true one, and twice as large.
    exact: int
    larger: int
    low: float
    high: float


def measure(scene: Scene, draws: int, seed: int = 0) -> Outcome:
    """Draw windows of a kind."""
    p = np.maximum(scene.law((np.arange(_RANKS) + 0.5) / _RANKS), 0.02)
    edges = np.unique(np.quantile(p, np.arange(1, _BINS) / _BINS))
    gaps = np.bincount(np.searchsorted(edges, p, side="right"), scene.accuracy(p) - p)
    true = float(np.abs(gaps).sum() / _RANKS)
    ratio = max(scene.right / scene.wrong, scene.wrong / scene.right)
    plain = exact = larger = 0
    ends = np.zeros(2)
    for number in range(draws):
        sums = _window(scene, p, edges, np.random.default_rng([seed, number])).sums(edges)
        first = _summary(sums, ratio)
        low, high = _ends(first)
        ends += low, high
        plain += (first.ece_low or 0) <= true <= (first.ece_high or 0)
        exact += low <= true <= high
        low, high = _ends(_summary(sums, 2 * ratio))
        larger += low <= true <= high
    return Outcome(true, plain, exact, larger, *(ends / draws).tolist())


def _window(scene: Scene, p: Values, edges: Values, rng: np.random.Generator) -> Cohort:
    confidences = p[rng.integers(len(p), size=scene.rows)]
    right = rng.random(scene.rows) < scene.accuracy(confidences)
    labelled = rng.random(scene.rows) < np.where(right, scene.right, scene.wrong)
    sums = CalibrationSums.empty(edges)
    sums.add_traffic(confidences)
    outcomes = right[labelled].astype(np.float64)
    expected = sums.traffic_confidence
    return Cohort(sums.traffic, confidences[labelled], outcomes, traffic_confidence=expected)


def _summary(sums: CalibrationSums, ratio: float) -> Window:
    return summarise_window(sums, weighting="traffic", selection_ratio=ratio)


def _ends(window: Window) -> tuple[float, float]:
    if window.selection_low is None or window.selection_high is None:  # a ratio of 1
        return window.ece_low or 0.0, window.ece_high or 0.0
    return window.selection_low, window.selection_high


class States(NamedTuple):
    """Streams, those that are suspect or stale, and those of them that name the selection."""

    streams: int
    against: int
    named: int


def states(scene: Scene, streams: int, ratio: float = 1.0, seed: int = 1) -> States:
    """Monitor streams of 5 windows of a kind with an assumed ratio; count their last states."""
    p = scene.law((np.arange(_RANKS) + 0.5) / _RANKS)
    edges = np.unique(np.quantile(p, np.arange(1, _BINS) / _BINS))
    options = MonitorOptions(selection_ratio=ratio)
    against = named = 0
    for number in range(streams):
        rng, monitor = np.random.default_rng([seed, number]), Monitor(edges, options=options)
        for hour in range(5):
            monitor.add(hour, hour + 1, _window(scene, p, edges, rng))
        status = monitor.assess(5.0)
        against += status.state in ("suspect", "stale")
        named += status.may_be_selection
    return States(streams, against, named)


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=300, help="windows of each kind")
    parser.add_argument("--streams", type=int, default=50, help="of each kind")
    args = parser.parse_args()
    met = True
    print(f"{args.draws} windows of each kind; shares with exact 95% intervals")
    for name, scene in SCENES.items():
        outcome = measure(scene, args.draws)
        print(
            f"{name}: ECE {outcome.true:.1%}, band {outcome.low:.1%} to {outcome.high:.1%} (mean)\n"
            f"  interval has ECE             {interval(outcome.plain, args.draws)}\n"
            f"  band has ECE                 {interval(outcome.exact, args.draws)}\n"
            f"  band of twice the ratio has  {interval(outcome.larger, args.draws)}",
            flush=True,
        )
        met &= min(outcome.exact, outcome.larger) >= _GOAL * args.draws
    for name in ("calibrated, all errors, half of the rest", "a single confidence, errors twice"):
        for ratio in (1.0, 2.0):
            counts = states(SCENES[name], args.streams, ratio)
            against = interval(counts.against, args.streams)
            named = interval(counts.named, args.streams)
            print(
                f"streams, {name}; assumed ratio {ratio:g}\n"
                f"  suspect or stale             {against}\n"
                f"  names the selection          {named}",
                flush=True,
            )
            met &= counts.named >= _GOAL * counts.against
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
