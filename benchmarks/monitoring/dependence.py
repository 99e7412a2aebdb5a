"""`python -m benchmarks.monitoring.dependence`: calibrated streams whose rows depend on each other.

Confidences are those of a binary classifier with normal log-odds, N(1.5, 1.5²). Every row is right
with a probability of exactly its confidence, on average over what its group has in common.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import Cohort, Monitor, quantile_edges

Values = NDArray[np.float64]

#: Days, each a cohort.
_DAYS = 30
#: Of each kind: rows of a group, whether these are copies, the standard deviation of the log-odds
#: that a group has in common, and rows of a day.
KINDS = {
    "independent rows": (1, False, 0.0, 400),
    "copies of 2": (2, True, 0.0, 400),
    "copies of 3": (3, True, 0.0, 399),
    "copies of 5": (5, True, 0.0, 400),
    "sessions of 30, sd .7": (30, False, 0.7, 390),
    "days, sd .7": (400, False, 0.7, 400),
}
_Z = np.linspace(-15, 15, 6_001)


def draw(kind: str, rng: np.random.Generator) -> tuple[Values, Values, NDArray[np.int64]]:
    """Return confidences, correctness and groups (N,) of a stream, by time."""
    size, copies, deviation, day = KINDS[kind]
    groups = np.arange(_DAYS * day // size)
    z = rng.normal(1.5, 1.5, len(groups) if copies else _DAYS * day)
    p = scipy.special.expit(np.abs(z))
    if copies:
        p, right = (np.repeat(column, size) for column in (p, rng.random(len(p)) < p))
    else:
        common = np.repeat(rng.normal(0, deviation, len(groups)), size)
        # The log-odds whose mean probability over groups is p.
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        means = scipy.special.expit(_Z[:, None] + deviation * nodes) @ (weights / weights.sum())
        right = rng.random(len(p)) < scipy.special.expit(np.interp(p, means, _Z) + common)
    return p, right.astype(np.float64), np.repeat(groups, size) + 1


def measure(kind: str, seed: int, *, grouped: bool) -> tuple[bool, bool, bool]:
    """Return whether a stream is ever stale, warned of, and has ECE 0 in its interval."""
    p, correct, groups = draw(kind, np.random.default_rng(seed))
    edges = quantile_edges(
        scipy.special.expit(np.abs(np.random.default_rng(0).normal(1.5, 1.5, 5_000)))
    )
    monitor = Monitor(edges)
    for day, rows in enumerate(np.split(np.arange(len(p)), _DAYS)):
        where = np.searchsorted(edges, p[rows], side="right")
        traffic = np.bincount(where, minlength=len(edges) + 1)
        times = day + np.arange(len(rows)) / len(rows)
        numbers = groups[rows] if grouped else None
        monitor.add(
            day, day + 1, Cohort(traffic, p[rows], correct[rows], times=times, groups=numbers)
        )
    evidence = monitor.assess(float(_DAYS)).evidence
    return evidence.rejected_at is not None, evidence.dependent, not evidence.ece_low


def main() -> None:
    """Print a table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="of each kind")
    streams, met = parser.parse_args().streams, True
    print(f"{streams} streams of {_DAYS} days of each kind; shares with exact 95% intervals")
    for kind in KINDS:
        for grouped in (False, True):
            results = [measure(kind, seed, grouped=grouped) for seed in range(streams)]
            stale, warned, covered = (sum(column) for column in zip(*results, strict=True))
            print(f"{kind}, {'with' if grouped else 'without'} groups")
            print(f"  stale              {interval(stale, streams)}")
            print(f"  warned of          {interval(warned, streams)}")
            print(f"  interval has ECE   {interval(covered, streams)}", flush=True)
            expected = KINDS[kind][0] > 1 and not grouped
            met &= warned >= 0.95 * streams if expected else max(stale, warned) <= 0.05 * streams
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
