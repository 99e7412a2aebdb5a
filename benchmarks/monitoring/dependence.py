"""`python -m benchmarks.monitoring.dependence`: calibrated streams whose rows depend on each other.

Confidences are those of a binary classifier with normal log-odds, N(1.5, 1.5²). Every row is right
with a probability of exactly its confidence, on average over what its group has in common.
"""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import Cohort, Monitor, quantile_edges

Values = NDArray[np.float64]

#: Days, each a cohort, and their length in seconds.
_DAYS, _DAY = 30, 86_400.0


class _Kind(NamedTuple):
    """A kind of stream."""

    #: Rows of a group, and of a day.
    size: int
    rows: int
    #: Whether rows of a group are copies, or else the standard deviation of the log-odds that they
    #: have in common.
    copies: bool = False
    deviation: float = 0.0
    #: Groups at a time: with more than one, rows of a group follow each other at random distances
    #: with this mean.
    at_once: int = 1


KINDS = {
    "independent rows": _Kind(1, 400),
    "copies of 2": _Kind(2, 400, copies=True),
    "copies of 3": _Kind(3, 399, copies=True),
    "copies of 5": _Kind(5, 400, copies=True),
    "sessions of 30, sd .7": _Kind(30, 390, deviation=0.7),
    "days, sd .7": _Kind(400, 400, deviation=0.7),
    "days, sd .3": _Kind(400, 400, deviation=0.3),
    "sessions of 30, sd .7, 10 at a time": _Kind(30, 390, deviation=0.7, at_once=10),
}
_Z = np.linspace(-15, 15, 6_001)
#: The longest distance of rows with a group in common, and levels of a test that knows how often:
#: the second is that of all lengths together at the look of `DependenceTest` at 11,585 labels.
_FARTHEST, _LEVELS = 1_000, (0.01, 0.05 / 60)


def draw(name: str, rng: np.random.Generator) -> tuple[Values, Values, NDArray[np.int64]]:
    """Return confidences, correctness and groups (N,) of a stream, by time."""
    kind = KINDS[name]
    rows = _DAYS * kind.rows
    groups = np.repeat(np.arange(rows // kind.size), kind.size)
    if kind.at_once > 1:
        places = np.cumsum(rng.exponential(kind.at_once, (len(groups) // kind.size, kind.size)), 1)
        places += rows * np.sort(rng.random((len(places), 1)), axis=0)
        groups = groups[np.argsort(places.ravel())]
    z = rng.normal(1.5, 1.5, groups.max() + 1 if kind.copies else rows)
    p = scipy.special.expit(np.abs(z))
    if kind.copies:
        p, right = p[groups], (rng.random(len(p)) < p)[groups]
    else:
        common = rng.normal(0, kind.deviation, groups.max() + 1)[groups]
        # The log-odds whose mean probability over groups is p.
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        means = scipy.special.expit(_Z[:, None] + kind.deviation * nodes)
        means = means @ (weights / weights.sum())
        right = rng.random(rows) < scipy.special.expit(np.interp(p, means, _Z) + common)
    return p, right.astype(np.float64), groups + 1


def shares_of_pairs(name: str) -> Values:
    """Return the share of pairs of rows that have a group in common, by their distance in rows."""
    shares = np.zeros(_FARTHEST + 1)
    for seed in range(20):
        _, _, groups = draw(name, np.random.default_rng(1_000_000 + seed))
        for distance in range(1, len(shares)):
            shares[distance] += np.mean(groups[distance:] == groups[:-distance]) / 20
    return shares


def score(shares: Values, p: Values, correct: Values) -> float:
    """Return the score of a common effect of groups with these shares, standard normal without one.

    Terms have the mean 0 given the rows before, so that the sum of their squares is the variance.
    """
    residuals = correct - p
    terms = residuals * scipy.signal.fftconvolve(residuals, shares)[: len(p)]
    return float(terms.sum() / np.sqrt((terms**2).sum()))


class Outcome(NamedTuple):
    """What happened to a stream."""

    #: Whether it is ever stale, warned of at the end, and has ECE 0 in its interval.
    stale: bool
    warned: bool
    covered: bool


def measure(name: str, seed: int, *, grouped: bool) -> Outcome:
    """Return what happens to a stream."""
    p, correct, groups = draw(name, np.random.default_rng(seed))
    edges = quantile_edges(
        scipy.special.expit(np.abs(np.random.default_rng(0).normal(1.5, 1.5, 5_000)))
    )
    monitor = Monitor(edges)
    for day, rows in enumerate(np.split(np.arange(len(p)), _DAYS)):
        where = np.searchsorted(edges, p[rows], side="right")
        traffic = np.bincount(where, minlength=len(edges) + 1)
        start, end = day * _DAY, (day + 1) * _DAY
        times = np.linspace(start, end, len(rows), endpoint=False)
        numbers = groups[rows] if grouped else None
        monitor.add(
            start, end, Cohort(traffic, p[rows], correct[rows], times=times, groups=numbers)
        )
    evidence = monitor.assess(_DAYS * _DAY).evidence
    is_warned = evidence.dependent or evidence.has_repeats
    return Outcome(evidence.rejected_at is not None, is_warned, not evidence.ece_low)


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="of each kind")
    streams, met = parser.parse_args().streams, True
    print(f"{streams} streams of {_DAYS} days of each kind; shares with exact 95% intervals")
    for name, kind in KINDS.items():
        for grouped in (False, True):
            results = [measure(name, seed, grouped=grouped) for seed in range(streams)]
            stale, warned, covered = (sum(column) for column in zip(*results, strict=True))
            unwarned = sum(result.stale and not result.warned for result in results)
            print(f"{name}, {'with' if grouped else 'without'} groups")
            print(f"  stale              {interval(stale, streams)}")
            print(f"  warned of          {interval(warned, streams)}")
            print(f"  stale, not warned  {interval(unwarned, streams)}")
            print(f"  interval has ECE   {interval(covered, streams)}", flush=True)
            if grouped or kind.size == 1:
                met &= max(stale, warned) <= 0.05 * streams
            elif kind.at_once == 1:  # the rows of others hide the rest
                met &= warned >= 0.95 * streams
        if kind.at_once > 1:
            _print_scores(name, streams)
    sys.exit(0 if met else 1)


def _print_scores(name: str, streams: int) -> None:
    """Print how often one look at the end finds these sessions, by a test that knows them."""
    shares = shares_of_pairs(name)
    print(f"{name}, found by a test that knows how often neighbours are of one session")
    for stream in (name, "independent rows"):
        rows = (draw(stream, np.random.default_rng(seed)) for seed in range(streams))
        chances = scipy.special.ndtr([-score(shares, p, correct) for p, correct, _ in rows])
        for level in _LEVELS:
            found = interval(int(np.sum(chances < level)), streams)
            print(f"  level {level:.2%}        {found}  of {stream}", flush=True)


if __name__ == "__main__":
    main()
