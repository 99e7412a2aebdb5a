"""`python -m benchmarks.classwise_interval [--runs N]`: the interval of `classwise_ce`.

Rows are drawn from populations with known truth: a law of logits (`benchmarks.populations.LOGITS`),
calibrated, too sure, or with an offset for each class. Each line has:

- `cover`: draws whose 95% interval contains the truth of the joined bins, with the exact binomial
  interval of Clopper and Pearson (1934); misses below and above;
- `fixed`: the same for the truth of the 15 bins, joined or not;
- `ratio`: mean width by 2 · 1.96 · the standard deviation of the value over the draws, which is the
  width of an interval that knows this deviation;
- `plug-in`: the same ratio for `classwise_ece`.

The last lines count the hits over all lines, and print the ratios at K = 10 and 100 with N = 1,000
and 5,000. It takes about four minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks.coverage import CLASSWISE, GOAL, without_floors
from benchmarks.populations import BINS, CLASSES, LOGITS, Classes
from recalib.metrics import METRICS, Predictions

_LEVEL = 0.95
_CLASSES, _ROWS = (2, 3, 10, 100), (200, 1_000, 5_000, 10_000)
#: A third of the draws from this number of probabilities.
_MANY = 600_000
#: The plug-in error takes more time than all else.
_PLUG_IN_DRAWS = 40
#: As in `benchmarks.coverage`.
_UNLUCKY = 1e-3


@dataclass(frozen=True)
class Line:
    """One population at one N."""

    classes: int
    rows: int
    law: str
    truth: str
    true_value: float
    draws: int
    below: int
    above: int
    #: Draws that contain the truth of the bins before they are joined.
    fixed: int
    width: float
    ratio: float
    plug_in_ratio: float

    @property
    def hits(self) -> int:
        """Draws whose interval contains the truth."""
        return self.draws - self.below - self.above

    def __str__(self) -> str:
        low, high = _clopper_pearson(self.hits, self.draws)
        missed = "" if _is_met(self.hits, self.draws) else "  MISSED"
        return (
            f"K ={self.classes:4} N ={self.rows:6}  {self.law:10}{self.truth:19}"
            f"{self.true_value:7.4f}  cover {self.hits}/{self.draws} [{low:.3f}, {high:.3f}]"
            f" ({self.below}, {self.above})  fixed {self.fixed}  width {self.width:.4f}"
            f"  ratio{self.ratio:5.2f}  plug-in{self.plug_in_ratio:6.2f}{missed}"
        )


def measure(rows: int, population: Classes, names: tuple[str, str], draws: int) -> Line:
    """Draw rows with a fixed seed and return the coverage and width of the interval."""
    rng = np.random.default_rng(0)
    fixed = CLASSWISE["marginal_ece_l2"](population, population.draw(1, rng))
    unbiased, plug_in, truths = [], [], []
    with without_floors():
        for draw in range(draws):
            sample = population.draw(rows, rng)
            truths.append(CLASSWISE["classwise_ce"](population, sample))
            unbiased.append(_ends("classwise_ce", sample))
            if draw < _PLUG_IN_DRAWS:
                plug_in.append(_ends("classwise_ece", sample))
    _, low, high = np.array(unbiased, float).T
    below, above = truths < low - 1e-9, truths > high + 1e-9
    return Line(
        len(population.columns),
        rows,
        *names,
        float(np.mean(truths)),
        draws,
        int(below.sum()),
        int(above.sum()),
        int(((low - 1e-9 <= fixed) & (fixed <= high + 1e-9)).sum()),
        float((high - low).mean()),
        _ratio(np.array(unbiased, float)),
        _ratio(np.array(plug_in, float)),
    )


def _ends(name: str, sample: Predictions) -> tuple[float, float | None, float | None]:
    estimate = METRICS[name](BINS).measure(sample, _LEVEL)
    return estimate.value, estimate.low, estimate.high


def _ratio(ends: NDArray[np.float64]) -> float:
    """Return the mean width of intervals over that of the ideal one, from (draws, 3)."""
    values, low, high = ends.T
    return float((high - low).mean() / (2 * scipy.special.ndtri((1 + _LEVEL) / 2) * values.std()))


def _clopper_pearson(hits: int, draws: int) -> tuple[float, float]:
    interval = scipy.stats.binomtest(hits, draws).proportion_ci(_LEVEL, method="exact")
    return float(interval.low), float(interval.high)


def _is_met(hits: int, draws: int) -> bool:
    return bool(scipy.stats.binom.cdf(hits, draws, GOAL) >= _UNLUCKY)


def main() -> None:
    """Print a line for each K, law, truth and N."""
    parser = argparse.ArgumentParser(description="Measure the interval of classwise_ce.")
    parser.add_argument("--runs", type=int, default=200, help="draws; fewer for many rows")
    parser.add_argument("--classes", type=int, nargs="*", default=_CLASSES)
    parser.add_argument("--rows", type=int, nargs="*", default=_ROWS)
    arguments = parser.parse_args()
    lines = []
    for classes in arguments.classes:
        for law in LOGITS:
            for truth in CLASSES:
                population = Classes(classes, truth, law)
                for rows in arguments.rows:
                    draws = arguments.runs // (3 if rows * classes > _MANY else 1)
                    lines.append(measure(rows, population, (law, truth), draws))
                    print(lines[-1], flush=True)
    _print_summary(lines)
    sys.exit(any(not _is_met(line.hits, line.draws) for line in lines))


def _print_summary(lines: list[Line]) -> None:
    hits, draws = sum(line.hits for line in lines), sum(line.draws for line in lines)
    low, high = _clopper_pearson(hits, draws)
    print(f"\nall {len(lines)} lines: {hits} of {draws} cover, [{low:.4f}, {high:.4f}]")
    worst = min(lines, key=lambda line: line.hits / line.draws)
    print(f"lowest: {worst}")
    for classes in (10, 100):
        for rows in (1_000, 5_000):
            cell = [line for line in lines if (line.classes, line.rows) == (classes, rows)]
            if not cell:
                continue
            ratios = ", ".join(
                f"{name} {np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
                for name, values in (
                    ("classwise_ce", [line.ratio for line in cell]),
                    ("classwise_ece", [line.plug_in_ratio for line in cell]),
                )
            )
            print(
                f"K = {classes}, N = {rows:,}: width by the ideal one, median and range: {ratios}"
            )


if __name__ == "__main__":
    main()
