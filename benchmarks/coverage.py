"""`python -m benchmarks.coverage [METRIC ...]`: how often 95% intervals hold the truth, how wide.

Rows are drawn from populations whose truth is known (`benchmarks.populations`) and measured; the
true value is that of infinitely many rows, in the bins or by the kernels of these. Each line is one
metric, number of rows and population:

- `cover`: the percentage of draws whose interval holds the truth, and the misses below and above;
- `width`: the mean width of the interval;
- `boot`: the mean width of percentile intervals of 100 bootstraps (40 by kernels) over the first
  draws, and how many of them hold the truth.

Last come the same of each metric over all lines. The goal is 93%, which a line or a metric misses
if an exact binomial test of its draws refuses it at 0.1%: of eight hundred lines one is unlucky.
Lines of 50,000 rows have few draws and say little by themselves; a metric's say much.
The grid takes some ten minutes of two cores. Floors are left out, which would take most of it.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from benchmarks.populations import BINS, CLASSES, LAWS, Classes, Population, TopLabel
from recalib.metrics import (
    METRICS,
    Predictions,
    calibration_gaps,
    ece_debiased,
    ece_kde,
    ece_label_binned,
    ks_error,
    ks_noise,
    smooth_ece,
)
from recalib.metrics.binning import bin_indices
from recalib.metrics.confidence_order import sort_by_confidence
from recalib.metrics.ece_sweep import _max_bins
from recalib.metrics.kernels import best_bandwidth

__all__ = ["GOAL", "Result", "main", "measure"]

Values = NDArray[np.float64]
TrueValue = Callable[[Any, Predictions], float]

GOAL = 0.93
#: How improbable so few hits must be at the goal before it counts as missed.
_UNLUCKY = 1e-3
_LEVEL = 0.95
#: Draws of the top label by rows; of classes a fifth, of 100 classes a tenth.
_DRAWS = {300: 160, 2_000: 60, 50_000: 20}
#: Metrics that are measured of every so many draws only, and of how many rows at most.
_EVERY = {"smooth_ece": 4, "ece_kde": 10, "ece_kde_classwise": 2, "ece_kde_canonical": 2}
_MOST_ROWS = {"ece_kde": 2_000, "ece_kde_classwise": 300, "ece_kde_canonical": 300}
_MOST_CLASSES = {"ece_kde_classwise": 10, "ece_kde_canonical": 3}
_BOOTSTRAPS, _BOOTSTRAPPED = 100, {300: 3, 2_000: 2, 50_000: 1}
#: Every law calibrated, and every other truth with a law or two that it is hard in.
PAIRS = [(law, "calibrated") for law in LAWS] + [
    ("Beta(30, .6)", "2% too sure"),
    ("one bin", "2% too sure"),
    ("even, K = 2", "10% too sure"),
    ("unsure, K = 100", "10% too sure"),
    ("Beta(8, 1)", "half as unsure"),
    ("even, K = 2", "both signs"),
    ("Beta(30, .6)", "wrong where sure"),
    ("one bin", "wrong where sure"),
    ("Beta(8, 1)", "wrong where unsure"),
]
MANY = [(classes, truth) for classes in (2, 10, 100) for truth in CLASSES] + [
    (3, "calibrated"),
    (3, "too sure"),
]


def _by_width(population: Population, order: float) -> float:
    """Return the mean over columns of Σ w|g|^order."""
    parts = [column.by_width() for column in population.columns]
    return float(np.mean([w @ np.abs(gaps) ** order for w, _, gaps in parts]))


def _largest(population: TopLabel, rows: Predictions) -> float:
    """Return the largest gap of the bins that hold any of these rows."""
    (column,) = population.columns
    where = bin_indices(column.p, BINS)
    held = np.isin(where, bin_indices(rows.confidences, BINS))
    sums = np.bincount(where[held], column.gaps[held])
    return float((np.abs(sums) / np.maximum(np.bincount(where[held]), 1)).max())


def _swept(population: TopLabel, rows: Predictions) -> float:
    """Return the error of as many bins as these rows choose."""
    right = sort_by_confidence(rows)[1]
    bins = _max_bins(right, np.concatenate([[0.0], np.cumsum(right)]))
    return float(np.sqrt(population.columns[0].by_mass(bins, 2)))


def _resolution(population: TopLabel, _: Predictions) -> float:
    shares, confidences, gaps = population.columns[0].by_width()
    return float(shares @ (confidences + gaps - population.accuracy) ** 2)


def _excess(population: TopLabel, _: Predictions) -> float:
    right = population.accuracy
    return population.area - (1 - right + right * float(np.log(right)))


def _by_kernels(population: Classes, rows: Predictions) -> float:
    """Return the mean over columns, each with the bandwidth of its column of these rows."""
    columns = zip(population.columns, rows.probabilities.T, strict=True)
    return float(np.mean([one.by_kernels(_bandwidth_of(p)) for one, p in columns]))


def _bandwidth_of(p: Values) -> float:
    return _best_bandwidth(np.stack([p, 1 - p], axis=1))


#: By name: the true value of a population, in the bins or by the kernels of the rows drawn.
TOP_LABEL: dict[str, TrueValue] = {
    "ece": lambda population, _: _by_width(population, 1),
    "ece_l2": lambda population, _: _by_width(population, 2) ** 0.5,
    "ece_debiased": lambda population, _: _by_width(population, 2) ** 0.5,
    "ece_equal_mass": lambda population, _: population.columns[0].by_mass(BINS, 1),
    "ece_l2_equal_mass": lambda population, _: population.columns[0].by_mass(BINS, 2) ** 0.5,
    "ece_label_binned": lambda population, _: population.distance,
    "ece_sweep": _swept,
    "mce": _largest,
    "ks_error": lambda population, _: population.columns[0].farthest(),
    "smooth_ece": lambda population, _: population.smooth,
    "ece_kde": lambda population, rows: population.columns[0].by_kernels(
        _bandwidth_of(rows.confidences)
    ),
    "aurc": lambda population, _: population.area,
    "e_aurc": _excess,
    "brier_reliability": lambda population, _: _by_width(population, 2),
    "brier_resolution": _resolution,
    "brier_uncertainty": lambda population, _: population.accuracy * (1 - population.accuracy),
}
CLASSWISE: dict[str, TrueValue] = {
    "classwise_ece": lambda population, _: _by_width(population, 1),
    "marginal_ece_l2": lambda population, _: _by_width(population, 2) ** 0.5,
    "classwise_ece_equal_mass": lambda population, _: float(
        np.mean([column.by_mass(BINS, 1) for column in population.columns])
    ),
    "ks_error_classwise": lambda population, _: float(
        np.mean([column.farthest() for column in population.columns])
    ),
    "ece_kde_classwise": _by_kernels,
    "ece_kde_canonical": lambda population, rows: population.canonical(
        _best_bandwidth(rows.probabilities)
    ),
}


@dataclass(frozen=True)
class Result:
    """One line."""

    metric: str
    rows: int
    population: str
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
        """Whether the goal may be met, as far as so many draws can tell."""
        return _may_meet(self.coverage, self.draws)

    def __str__(self) -> str:
        verdict = "" if self.met else "  MISSED"
        return (
            f"{self.metric:25}{self.rows:6}  {self.population:35}{self.true_value:7.4f}"
            f"{self.coverage:7.1%} ({self.below:.1%}, {self.above:.1%}){self.width:8.4f}"
            f"  boot{self.boot_width:8.4f} {self.boot_coverage:4.0%}{verdict}"
        )


def measure(names: list[str], classes: int | None, law: str, truth: str, rows: int) -> list[Result]:
    """Draw rows, the same each time, and measure each of the metrics; `classes` or else `law`."""
    population: Population = TopLabel(law, truth) if classes is None else Classes(classes, truth)
    truths = TOP_LABEL if classes is None else CLASSWISE
    names = [
        name
        for name in truths
        if name in names
        and rows <= _MOST_ROWS.get(name, rows)
        and (classes or 0) <= _MOST_CLASSES.get(name, 100)
    ]
    draws = _DRAWS[rows] // (1 if classes is None else 5 if classes < 100 else 10)
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    again: dict[str, list[list[float]]] = {name: [] for name in names}
    fixed: dict[str, float] = {}
    rng = np.random.default_rng(0)
    with _without_floors():
        for draw in range(draws):
            drawn = population.draw(rows, rng)
            for name in names:
                if draw % _EVERY.get(name, 1):
                    continue
                if name in _DEPENDING or name not in fixed:
                    fixed[name] = truths[name](population, drawn)
                one = METRICS[name](BINS).measure(drawn, _LEVEL)
                assert one.low is not None
                assert one.high is not None
                found[name].append([one.low, one.high, fixed[name]])
                if len(found[name]) <= _bootstrapped(name, rows, classes):
                    again[name].append([*_bootstrap(name, drawn), fixed[name]])
    return [_result(name, rows, population.label, found[name], again[name]) for name in names]


#: Metrics whose true value depends on the rows drawn.
_DEPENDING = {"mce", "ece_sweep", "ece_kde", "ece_kde_classwise", "ece_kde_canonical"}


def _bootstrapped(name: str, rows: int, classes: int | None) -> int:
    if "kde" in name:
        return int(rows == 300)
    return _BOOTSTRAPPED[rows] if classes is None else int(rows * classes <= 200_000)


def _bootstrap(name: str, drawn: Predictions) -> list[float]:
    """Return the ends of a percentile interval."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(40 if "kde" in name else _BOOTSTRAPS):
        i = rng.integers(0, len(drawn), len(drawn))
        p = drawn.probabilities[i]
        same = Predictions(p, drawn.labels[i], drawn.predicted[i], np.zeros(len(i)), p)
        values.append(METRICS[name](BINS).measure(same).value)
    return list(np.quantile(values, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]))


def _result(
    name: str, rows: int, label: str, found: list[list[float]], again: list[list[float]]
) -> Result:
    below, above, width, true_value = _misses(found)
    boot_below, boot_above, boot_width, _ = _misses(again or [[np.nan] * 3])
    boot = 1 - boot_below - boot_above if again else np.nan
    return Result(name, rows, label, true_value, len(found), below, above, width, boot, boot_width)


def _misses(ends: list[list[float]]) -> tuple[float, float, float, float]:
    """Return the shares of intervals below and above which the truth is; mean width and truth."""
    low, high, true_value = np.array(ends, float).T
    # Rounding: of no error at all, sums of gaps leave 1e-17.
    below, above = true_value < low - 1e-9, true_value > high + 1e-9
    means = below.mean(), above.mean(), (high - low).mean(), true_value.mean()
    return tuple(float(one) for one in means)  # type: ignore[return-value]


#: So that what the truth needs to know of these rows is not searched for twice.
_remembered: dict[bytes, float] = {}


def _best_bandwidth(p: Values) -> float:
    key = p.tobytes()
    if key not in _remembered:
        if len(_remembered) > 50:
            _remembered.clear()
        _remembered[key] = best_bandwidth(p)
    return _remembered[key]


def _without_floors() -> ExitStack:
    """Return a context in which floors are 0."""
    stack = ExitStack()
    modules = calibration_gaps, ece_debiased, ece_label_binned, ks_error
    drawn = [
        mock.patch.object(module, "noise_floor", return_value=(0.0, 0.0)) for module in modules
    ]
    others = (smooth_ece, "_fixed_points"), (ks_noise, "_floors")
    drawn += [mock.patch.object(*place, return_value=np.zeros(1)) for place in others]
    for one in drawn:
        stack.enter_context(one)
    stack.enter_context(mock.patch.object(ece_kde, "best_bandwidth", _best_bandwidth))
    return stack


def _work(names: list[str], job: tuple[int | None, str, str, int]) -> list[Result]:
    return measure(names, *job)


def _results(names: list[str]) -> Iterator[Result]:
    """Yield every line, from all cores; the longest work first."""
    top = set(names) & set(TOP_LABEL)
    jobs: list[tuple[int | None, str, str, int]] = []
    for rows in sorted(_DRAWS, reverse=True):
        if set(names) & set(CLASSWISE):
            jobs += [(classes, "", truth, rows) for classes, truth in reversed(MANY)]
        jobs += [(None, law, truth, rows) for law, truth in PAIRS] if top else []
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for results in pool.imap_unordered(partial(_work, names), jobs):
            yield from results


def _say_over_all(name: str, own: list[Result]) -> bool:
    """Print a metric's lines together; return whether the goal may be met."""
    draws = sum(one.draws for one in own)
    covered = sum(one.coverage * one.draws for one in own) / draws
    beside = [one.width / one.boot_width for one in own if one.boot_width > 0]
    lowest = min(own, key=lambda one: one.coverage)
    met = _may_meet(covered, draws)
    print(
        f"{name:25}{len(own):3} lines {covered:7.1%}, lowest {lowest.coverage:.1%} of"
        f" {lowest.draws}; width by the bootstrap's: median {np.median(beside):.2f}"
        + ("" if met else "  MISSED")
    )
    return met


def _may_meet(coverage: float, draws: int) -> bool:
    held = round(coverage * draws)
    return bool(scipy.stats.binom.cdf(held, draws, GOAL) >= _UNLUCKY)


def main() -> None:
    """Print every line of the metrics named, or of all."""
    names = sys.argv[1:] or [*TOP_LABEL, *CLASSWISE]
    results = []
    for result in _results(names):
        print(result, flush=True)
        results.append(result)
    print()
    missed = sum(not one.met for one in results)
    for name in names:
        missed += not _say_over_all(name, [one for one in results if one.metric == name])
    print(f"{missed} missed of {len(results)}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
