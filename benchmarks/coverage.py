"""`python -m benchmarks.coverage [METRIC ...]`: how often 95% intervals hold the truth, how wide.

Rows are drawn from laws of confidence, right as often as a truth says, and measured; the true
value is that of infinitely many rows. Laws are even ones, those of a sure model of few classes and
of an unsure one of many, and all rows in one bin; truths are calibrated, or off in ways of either
sign. Each line is one metric, number of rows, law and truth:

- `cover`: the percentage of draws whose interval holds the truth, below and above it the misses;
- `width`: the mean width of the interval;
- `boot`: what percentile intervals of 100 bootstraps would be, their coverage and mean width, over
  the first draws.

The goal is 93%, which is missed if coverage is below it by over two standard errors of the draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from recalib.metrics import METRICS, Predictions
from recalib.metrics.binning import bin_of

__all__ = ["GOAL", "Result", "main", "measure"]

Values = NDArray[np.float64]
Truth = Callable[[Values], Values]

GOAL = 0.93
_LEVEL = 0.95
_BINS = 15
#: Those of the true distribution: a multiple of the bins.
_RANKS = 450_000
#: Draws for each number of rows.
_DRAWS = {300: 1000, 1_000: 1000, 5_000: 500, 50_000: 200}
_BOOTSTRAPS, _BOOTSTRAPPED = 100, {300: 40, 1_000: 40, 5_000: 20, 50_000: 5}

LAWS = {
    "even, K = 2": scipy.stats.uniform(0.5, 0.5),
    "Beta(8, 1)": scipy.stats.beta(8, 1),
    "Beta(30, .6)": scipy.stats.beta(30, 0.6),
    "unsure, K = 100": scipy.stats.beta(1.5, 4, 0.01, 0.99),
    "one bin": scipy.stats.uniform(0.94, 0.06),
}
TRUTHS: dict[str, Truth] = {
    "calibrated": lambda p: p,
    "2% too sure": lambda p: 0.98 * p,
    "10% too sure": lambda p: 0.9 * p,
    "half as unsure": lambda p: (1 + p) / 2,
    "both signs": lambda p: np.clip(p + 0.1 * np.cos(9 * p), 0, 1),
    "wrong where sure": lambda p: np.where(p > 0.93, p - 0.03, p),
    "wrong where unsure": lambda p: np.where(p < 0.8, 0.6 * p, p),
}


@dataclass(frozen=True)
class Result:
    """One line."""

    metric: str
    rows: int
    law: str
    truth: str
    true_value: float
    draws: int
    below: float
    above: float
    width: float
    boot_coverage: float
    boot_width: float

    @property
    def coverage(self) -> float:
        """The share of draws whose interval holds the truth."""
        return 1 - self.below - self.above

    @property
    def met(self) -> bool:
        """Whether the goal may be met, by two standard errors."""
        return self.coverage >= GOAL - 2 * float(np.sqrt(GOAL * (1 - GOAL) / self.draws))

    def __str__(self) -> str:
        verdict = "" if self.met else "  MISSED"
        return (
            f"{self.metric:14}{self.rows:7}  {self.law:16}{self.truth:19}{self.true_value:7.4f}"
            f"{self.coverage:8.1%} ({self.below:.1%}, {self.above:.1%}){self.width:9.4f}"
            f"   boot {self.boot_coverage:4.0%}{self.boot_width:8.4f}{verdict}"
        )


def _binned(order: float) -> Callable[[str, str], float]:
    def true_value(law: str, truth: str) -> float:
        p, gaps = _population(law, truth)
        shares = np.bincount(bin_of(p, _BINS), minlength=_BINS) / len(p)
        sums = np.abs(np.bincount(bin_of(p, _BINS), gaps, _BINS) / len(p))[shares > 0]
        shares = shares[shares > 0]
        return float((shares @ (sums / shares) ** order) ** (1 / order))

    return true_value


def _equal_mass(order: float) -> Callable[[str, str], float]:
    def true_value(law: str, truth: str) -> float:
        _, gaps = _population(law, truth)
        parts = np.abs(gaps.reshape(_BINS, -1).mean(axis=1))
        return float(np.mean(parts**order) ** (1 / order))

    return true_value


def _farthest(law: str, truth: str) -> float:
    p, gaps = _population(law, truth)
    return float(np.abs(np.cumsum(gaps)).max() / len(p))


#: By the names of METRICS that are functions of confidence and correctness: the true value.
TRUE_VALUES: dict[str, Callable[[str, str], float]] = {
    "ece": _binned(order=1),
    "ece_l2": _binned(order=2),
    "ece_equal_mass": _equal_mass(order=1),
    "ece_l2_equal_mass": _equal_mass(order=2),
    "ece_debiased": _binned(order=2),
    "ks_error": _farthest,
}


@cache
def _population(law: str, truth: str) -> tuple[Values, Values]:
    """Return 450,000 confidences at even ranks, ascending, and their true gaps."""
    p = LAWS[law].ppf((np.arange(_RANKS) + 0.5) / _RANKS)
    return p, TRUTHS[truth](p) - p


def _predictions(p: Values, correct: NDArray[np.bool_]) -> Predictions:
    labels = np.where(correct, 0, 1)
    pairs = np.stack([p, 1 - p], axis=1)
    return Predictions(pairs, labels, np.zeros(len(p), np.int64), np.zeros(len(p)), pairs)


def measure(name: str, rows: int, law: str, truth: str) -> Result:
    """Draw rows as often as `_DRAWS` says, from the same seed each time."""
    rng = np.random.default_rng(0)
    metric = METRICS[name](_BINS)
    true_value = TRUE_VALUES[name](law, truth)
    ends, bootstraps = [], []
    for draw in range(_DRAWS[rows]):
        p = LAWS[law].rvs(rows, random_state=rng)
        correct = rng.random(rows) < TRUTHS[truth](p)
        found = metric.measure(_predictions(p, correct), _LEVEL)
        ends.append((found.low, found.high))
        if draw < _BOOTSTRAPPED[rows]:
            again = [rng.integers(0, rows, rows) for _ in range(_BOOTSTRAPS)]
            values = [metric.measure(_predictions(p[i], correct[i])).value for i in again]
            tail = (1 - _LEVEL) / 2
            bootstraps.append(np.quantile(values, [tail, 1 - tail]))
    below, above, width = _misses(np.array(ends, float), true_value)
    *boot_misses, boot_width = _misses(np.array(bootstraps), true_value)
    boot_coverage = 1 - sum(boot_misses)
    shares = below, above, width, boot_coverage, boot_width
    return Result(name, rows, law, truth, true_value, len(ends), *shares)


def _misses(ends: Values, true_value: float) -> tuple[float, float, float]:
    """Return the shares of intervals below and above which the truth is, and their mean width."""
    low, high = ends.T
    # Rounding: of no error at all, sums of gaps leave 1e-17.
    below, above = true_value < low - 1e-9, true_value > high + 1e-9
    return float(below.mean()), float(above.mean()), float((high - low).mean())


def _results(names: list[str]) -> Iterator[Result]:
    for name in names:
        for rows in _DRAWS:
            for law in LAWS:
                for truth in TRUTHS:
                    yield measure(name, rows, law, truth)


def main() -> None:
    """Print every line of the metrics named, or of all."""
    missed = 0
    for result in _results(sys.argv[1:] or list(TRUE_VALUES)):
        print(result, flush=True)
        missed += not result.met
    print(f"{missed} missed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
