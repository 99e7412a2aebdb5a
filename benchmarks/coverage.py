"""`python -m benchmarks.coverage [METRIC ...]`: coverage and width of 95% intervals.

Rows are drawn from populations with known truth (`benchmarks.populations`) and measured. The true
value is that of infinitely many rows, with the bins or kernels of the drawn rows. Each line is one
metric, number of rows and population:

- `cover`: the percentage of draws whose interval contains the truth, and misses below and above;
- `width`: the mean width of the interval;
- `boot`: the mean width of percentile intervals of 100 bootstraps (40 by kernels) over the first
  draws, and how many of them contain the truth.

The last lines show each metric over all its lines. The goal is 93%. A line or a metric misses it if
an exact binomial test of its draws rejects it at 0.1%: of eight hundred lines, one is expected to
fail by chance. Lines of 50,000 rows have few draws and low power; the metrics have high power.
The grid takes about ten minutes of two cores. Floors are skipped; they would take most of the time.
"""

from __future__ import annotations

import argparse
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
    ece_kde,
    ks_error,
    ks_noise,
    smooth_ece,
)
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.ece_sweep import _max_bins
from recalib.metrics.kernels import best_bandwidth
from recalib.stats.bin_indices import bin_indices

Values = NDArray[np.float64]
TrueValue = Callable[[Any, Predictions], float]

GOAL = 0.93
#: The goal counts as missed if so few hits are less probable than this at the goal.
_UNLUCKY = 1e-3
_LEVEL = 0.95
#: Draws for the top label, by rows; a fifth for classwise metrics, a tenth with 100 classes.
_DRAWS = {300: 160, 2_000: 60, 50_000: 20}
#: Slow metrics: measured for every n-th draw only, and up to a number of rows.
_EVERY = {"smooth_ece": 4, "ece_kde": 10, "ece_kde_classwise": 2, "ece_kde_canonical": 2}
_MOST_ROWS = {"ece_kde": 2_000, "ece_kde_classwise": 300, "ece_kde_canonical": 300}
_MOST_CLASSES = {"ece_kde_classwise": 10, "ece_kde_canonical": 3}
_BOOTSTRAPS, _BOOTSTRAPPED = 100, {300: 3, 2_000: 2, 50_000: 1}
#: Every law with calibrated confidences, and every other truth with one or two difficult laws.
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
MANY_CLASSES = [(classes, truth) for classes in (2, 10, 100) for truth in CLASSES] + [
    (3, "calibrated"),
    (3, "too sure"),
]


def _by_width(population: Population, order: float) -> float:
    """Return the mean over columns of Σ w|g|^order."""
    parts = [column.by_width() for column in population.columns]
    return float(np.mean([w @ np.abs(gaps) ** order for w, _, gaps in parts]))


def _largest(population: TopLabel, rows: Predictions) -> float:
    """Return the largest gap of the bins that contain any of these rows."""
    (column,) = population.columns
    bins = bin_indices(column.p, BINS)
    inside = np.isin(bins, bin_indices(rows.confidences, BINS))
    sums = np.bincount(bins[inside], column.gaps[inside])
    return float((np.abs(sums) / np.maximum(np.bincount(bins[inside]), 1)).max())


def _swept(population: TopLabel, rows: Predictions) -> float:
    """Return the error with the number of bins that these rows choose."""
    bins = _max_bins(ConfidenceGroups.from_rows(rows.ties, rows.correct))
    return float(np.sqrt(population.columns[0].by_mass(bins, 2)))


def _resolution(population: TopLabel, _: Predictions) -> float:
    shares, confidences, gaps = population.columns[0].by_width()
    return float(shares @ (confidences + gaps - population.accuracy) ** 2)


def _excess(population: TopLabel, _: Predictions) -> float:
    right = population.accuracy
    return population.area - (1 - right + right * float(np.log(right)))


def _by_kernels(population: Classes, rows: Predictions) -> float:
    """Return the mean over columns, each with the bandwidth for the same column of these rows."""
    columns = zip(population.columns, rows.probabilities.T, strict=True)
    return float(np.mean([column.by_kernels(_bandwidth_of(p)) for column, p in columns]))


def _bandwidth_of(p: Values) -> float:
    return _best_bandwidth(np.stack([p, 1 - p], axis=1))


def _joined(population: Classes, rows: Predictions) -> float:
    cells = bin_indices(rows.probabilities, BINS) + np.arange(rows.classes) * BINS
    counts = np.bincount(cells.ravel(), minlength=rows.classes * BINS)
    return float(np.sqrt(population.joined(counts.reshape(-1, BINS))))


#: The true value of a population by metric, with the bins or kernels of the drawn rows.
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
    "classwise_ce": _joined,
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
#: Of two classes, with as many draws as the top label.
BINARY: dict[str, TrueValue] = {
    "binary_ece": lambda population, _: _error_of_class_1(population),
    "roc_auc": lambda population, _: _area(population),
}
#: The laws of the logits of two classes, of which class 1 is as frequent as class 0, or rare.
_BINARY_LAWS = ("normal", "rare")


def _error_of_class_1(population: Population) -> float:
    shares, _, gaps = population.columns[1].by_width()
    return float(shares @ np.abs(gaps))


def _area(population: Population) -> float:
    """Return the area under the ROC curve of ascending ranks without ties."""
    column = population.columns[1]
    ones = column.p + column.gaps
    zeros = 1 - ones
    return float(ones @ (np.cumsum(zeros) - zeros / 2) / (ones.sum() * zeros.sum()))


@dataclass(frozen=True)
class Result:
    """One line of the output."""

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
        """The share of draws whose interval contains the truth."""
        return 1 - self.below - self.above

    @property
    def met(self) -> bool:
        """Whether the number of hits is compatible with the goal."""
        return _may_meet(self.coverage, self.draws)

    def __str__(self) -> str:
        verdict = "" if self.met else "  MISSED"
        return (
            f"{self.metric:25}{self.rows:6}  {self.population:35}{self.true_value:7.4f}"
            f"{self.coverage:7.1%} ({self.below:.1%}, {self.above:.1%}){self.width:8.4f}"
            f"  boot{self.boot_width:8.4f} {self.boot_coverage:4.0%}{verdict}"
        )


def measure(names: list[str], classes: int | None, law: str, truth: str, rows: int) -> list[Result]:
    """Draw rows, with a fixed seed, and measure each metric.

    Parameters
    ----------
    classes: K; None for metrics of the top label.
    law: of confidences; of logits for metrics of two classes, "" for those of all classes.
    """
    if classes is None:
        population: Population = TopLabel(law, truth)
        truths = TOP_LABEL
    else:
        population = Classes(classes, truth, law or "normal")
        truths = BINARY if law else CLASSWISE
    names = [
        name
        for name in truths
        if name in names
        and rows <= _MOST_ROWS.get(name, rows)
        and (classes or 0) <= _MOST_CLASSES.get(name, 100)
    ]
    draws = _DRAWS[rows] // (1 if law else 5 if (classes or 0) < 100 else 10)
    intervals: dict[str, list[list[float]]] = {name: [] for name in names}
    repeated: dict[str, list[list[float]]] = {name: [] for name in names}
    fixed: dict[str, float] = {}
    rng = np.random.default_rng(0)
    with without_floors():
        for draw in range(draws):
            sample = population.draw(rows, rng)
            for name in names:
                if draw % _EVERY.get(name, 1):
                    continue
                if name in _DEPENDING or name not in fixed:
                    fixed[name] = truths[name](population, sample)
                estimate = METRICS[name](BINS).measure(sample, _LEVEL)
                assert estimate.low is not None
                assert estimate.high is not None
                intervals[name].append([estimate.low, estimate.high, fixed[name]])
                if len(intervals[name]) <= _bootstrapped(name, rows, classes):
                    repeated[name].append([*_bootstrap(name, sample), fixed[name]])
    return [
        _result(name, rows, population.label, intervals[name], repeated[name]) for name in names
    ]


#: Metrics whose true value depends on the rows drawn.
_DEPENDING = {
    "mce",
    "ece_sweep",
    "ece_kde",
    "ece_kde_classwise",
    "ece_kde_canonical",
    "classwise_ce",
}


def _bootstrapped(name: str, rows: int, classes: int | None) -> int:
    if "kde" in name:
        return int(rows == 300)
    return _BOOTSTRAPPED[rows] if classes is None else int(rows * classes <= 200_000)


def _bootstrap(name: str, sample: Predictions) -> list[float]:
    """Return the ends of a percentile interval."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(40 if "kde" in name else _BOOTSTRAPS):
        i = rng.integers(0, len(sample), len(sample))
        p = sample.probabilities[i]
        resampled = Predictions(p, sample.labels[i], sample.predicted[i], np.zeros(len(i)), p)
        values.append(METRICS[name](BINS).measure(resampled).value)
    return list(np.quantile(values, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]))


def _result(
    name: str, rows: int, label: str, intervals: list[list[float]], repeated: list[list[float]]
) -> Result:
    below, above, width, true_value = _misses(intervals)
    boot_below, boot_above, boot_width, _ = _misses(repeated or [[np.nan] * 3])
    boot = 1 - boot_below - boot_above if repeated else np.nan
    return Result(
        name, rows, label, true_value, len(intervals), below, above, width, boot, boot_width
    )


def _misses(ends: list[list[float]]) -> tuple[float, float, float, float]:
    """Return the shares of intervals with the truth below and above; mean width and truth."""
    low, high, true_value = np.array(ends, float).T
    # For an error of 0, rounded sums of gaps are about 1e-17.
    below, above = true_value < low - 1e-9, true_value > high + 1e-9
    means = below.mean(), above.mean(), (high - low).mean(), true_value.mean()
    return tuple(float(mean) for mean in means)  # type: ignore[return-value]


#: Cache of bandwidths: the true value needs the same search as the metric.
_remembered: dict[bytes, float] = {}


def _best_bandwidth(p: Values) -> float:
    key = p.tobytes()
    if key not in _remembered:
        if len(_remembered) > 50:
            _remembered.clear()
        _remembered[key] = best_bandwidth(p)
    return _remembered[key]


def without_floors() -> ExitStack:
    """Return a context in which floors are 0."""
    stack = ExitStack()
    modules = calibration_gaps, ks_error
    patches = [
        mock.patch.object(module, "noise_floor", return_value=(0.0, 0.0)) for module in modules
    ]
    functions = (smooth_ece, "_fixed_points"), (ks_noise, "_floors")
    patches += [mock.patch.object(*place, return_value=np.zeros(1)) for place in functions]
    for patch in patches:
        stack.enter_context(patch)
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
            jobs += [(classes, "", truth, rows) for classes, truth in reversed(MANY_CLASSES)]
        jobs += [(None, law, truth, rows) for law, truth in PAIRS] if top else []
        if set(names) & set(BINARY):
            jobs += [(2, law, truth, rows) for law in _BINARY_LAWS for truth in CLASSES]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for results in pool.imap_unordered(partial(_work, names), jobs):
            yield from results


def _say_over_all(name: str, results: list[Result]) -> bool:
    """Print the summary of a metric's lines; return whether it is compatible with the goal."""
    draws = sum(result.draws for result in results)
    covered = sum(result.coverage * result.draws for result in results) / draws
    ratios = [result.width / result.boot_width for result in results if result.boot_width > 0]
    lowest = min(results, key=lambda result: result.coverage)
    is_met = _may_meet(covered, draws)
    print(
        f"{name:25}{len(results):3} lines {covered:7.1%}, lowest {lowest.coverage:.1%} of"
        f" {lowest.draws}; width by the bootstrap's: median {np.median(ratios):.2f}"
        + ("" if is_met else "  MISSED")
    )
    return is_met


def _may_meet(coverage: float, draws: int) -> bool:
    hits = round(coverage * draws)
    return bool(scipy.stats.binom.cdf(hits, draws, GOAL) >= _UNLUCKY)


def main() -> None:
    """Print every line of the named metrics, or of all metrics."""
    known = [*TOP_LABEL, *CLASSWISE, *BINARY]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="METRIC", help=", ".join(known))
    names = parser.parse_args().names or known
    if unknown := set(names) - set(known):
        parser.error(f"no interval of {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    results = []
    for result in _results(names):
        print(result, flush=True)
        results.append(result)
    print()
    missed = sum(not result.met for result in results)
    for name in names:
        missed += not _say_over_all(name, [result for result in results if result.metric == name])
    print(f"{missed} missed of {len(results)}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
