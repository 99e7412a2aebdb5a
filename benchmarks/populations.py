"""Populations: distributions of confidence with known truth and known calibration error.

A column holds the probabilities of one event at equidistant ranks, ascending, and their true gaps.
There is one column for the top label, or one per class for class-wise errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.fft
import scipy.optimize
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from recalib.metrics import Predictions
from recalib.metrics.kernels import kernel_means
from recalib.metrics.smooth_ece import smooth_residuals
from recalib.stats.bin_indices import bin_indices

Values = NDArray[np.float64]

BINS = 15
#: Number of ranks R, a multiple of the bins.
_RANKS = 60_000
#: Number of groups of ranks for kernels, and of cells of a grid.
_RUNS, _CELLS = 2_000, 2**12

LAWS = {
    "even, K = 2": scipy.stats.uniform(0.5, 0.5),
    "Beta(8, 1)": scipy.stats.beta(8, 1),
    "Beta(30, .6)": scipy.stats.beta(30, 0.6),
    "unsure, K = 100": scipy.stats.beta(1.5, 4, 0.01, 0.99),
    "one bin": scipy.stats.uniform(0.94, 0.06),
}
TRUTHS: dict[str, Callable[[Values], Values]] = {
    "calibrated": lambda p: p,
    "2% too sure": lambda p: 0.98 * p,
    "10% too sure": lambda p: 0.9 * p,
    "half as unsure": lambda p: (1 + p) / 2,
    "both signs": lambda p: np.clip(p + 0.1 * np.cos(9 * p), 0, 1),
    "wrong where sure": lambda p: np.where(p > 0.93, p - 0.03, p),
    "wrong where unsure": lambda p: np.where(p < 0.8, 0.6 * p, p),
}


def _normal(rows: int, classes: int, rng: np.random.Generator) -> Values:
    """Return logits of standard deviation 3."""
    return 3 * rng.standard_normal((rows, classes))


def _confident(rows: int, classes: int, rng: np.random.Generator) -> Values:
    """Return logits of which one is larger by an exponential variable of mean 10."""
    logits = rng.standard_normal((rows, classes))
    logits[np.arange(rows), rng.integers(0, classes, rows)] += 10 * rng.exponential(1, rows)
    return logits


def _pairs(rows: int, classes: int, rng: np.random.Generator) -> Values:
    """Return logits that confuse the classes 2j and 2j + 1, so that their residuals correlate."""
    logits = rng.standard_normal((rows, classes))
    row, top = np.arange(rows), rng.integers(0, classes, rows)
    logits[row, top] += 6 * rng.exponential(1, rows)
    partner = np.minimum(top ^ 1, classes - 1)
    logits[row, partner] = logits[row, top] + 2 * rng.standard_normal(rows)
    return logits


def _rare(rows: int, classes: int, rng: np.random.Generator) -> Values:
    """Return logits of classes whose odds fall from the first to the last by a factor of e⁶."""
    return 2 * rng.standard_normal((rows, classes)) - np.linspace(0, 6, classes)


#: Laws of logits (N, K).
LOGITS: dict[str, Callable[[int, int, np.random.Generator], Values]] = {
    "normal": _normal,
    "confident": _confident,
    "pairs": _pairs,
    "rare": _rare,
}
#: Factor of the logits, and standard deviation of the offset of each class.
CLASSES = {
    "calibrated": (1.0, 0.0),
    "too sure": (0.7, 0.0),
    "some classes wrong": (1.0, 0.7),
}


@dataclass(frozen=True, eq=False)
class Column:
    """Probabilities (R,), ascending, and true gaps (R,)."""

    p: Values
    gaps: Values
    #: Cache of errors by bandwidth: there are few, and each takes a tenth of a second.
    known: dict[float, float] = field(default_factory=dict)

    def binned(self, cells: NDArray[np.intp], bins: int) -> tuple[Values, Values, Values]:
        """Return the shares, mean confidences and gaps of the nonempty bins."""
        counts = np.bincount(cells, minlength=bins)
        at = counts > 0
        sums = [np.bincount(cells, column, bins)[at] / counts[at] for column in (self.p, self.gaps)]
        return counts[at] / len(self.p), sums[0], sums[1]

    def by_width(self) -> tuple[Values, Values, Values]:
        """Return `binned` of bins of equal width."""
        return self.binned(bin_indices(self.p, BINS), BINS)

    def by_mass(self, bins: int, order: float) -> float:
        """Return Σ w|g|^order over bins of equal counts."""
        cells = np.arange(len(self.p)) * bins // len(self.p)
        shares, _, gaps = self.binned(cells, bins)
        return float(shares @ np.abs(gaps) ** order)

    def farthest(self) -> float:
        """Return max |Σ gaps|/R over ranks."""
        return float(np.abs(np.cumsum(self.gaps)).max() / len(self.p))

    def by_kernels(self, bandwidth: float) -> float:
        """Return the mean |Σ k q/Σ k − p| over groups of ranks."""
        if bandwidth not in self.known:
            self.known[bandwidth] = self._by_kernels(bandwidth)
        return self.known[bandwidth]

    def _by_kernels(self, bandwidth: float) -> float:
        p, gaps = (
            column[: len(column) // _RUNS * _RUNS].reshape(_RUNS, -1).mean(axis=1)
            for column in (self.p, self.gaps)
        )
        pairs = np.stack([p, 1 - p], axis=1)
        means = kernel_means(pairs, (p + gaps)[:, None], bandwidth)[:, 0]
        return float(np.abs(means - p).mean())


class Population(ABC):
    """A population of infinitely many rows; `columns` are sorted."""

    label: str
    columns: list[Column]

    @abstractmethod
    def draw(self, rows: int, rng: np.random.Generator) -> Predictions:
        """Return this number of rows."""


class TopLabel(Population):
    """Confidences from a law, with accuracies from a truth."""

    def __init__(self, law: str, truth: str) -> None:
        self.label = f"{law:16}{truth:19}"
        self._law, self._truth = LAWS[law], TRUTHS[truth]
        p = self._law.ppf((np.arange(_RANKS) + 0.5) / _RANKS)
        self.columns = [Column(p, self._truth(p) - p)]

    def draw(self, rows: int, rng: np.random.Generator) -> Predictions:
        p = self._law.rvs(rows, random_state=rng)
        labels = np.where(rng.random(rows) < self._truth(p), 0, 1)
        pairs = np.stack([p, 1 - p], axis=1)
        return Predictions(pairs, labels, np.zeros(rows, np.int64), np.zeros(rows), pairs)

    @property
    def accuracy(self) -> float:
        """The share of rows that are right."""
        (column,) = self.columns
        return float(np.mean(column.p + column.gaps))

    @property
    def distance(self) -> float:
        """1/R Σ |accuracy of the bin − p|."""
        (column,) = self.columns
        bins = bin_indices(column.p, BINS)
        counts = np.maximum(np.bincount(bins, minlength=BINS), 1)
        accuracy = np.bincount(bins, column.p + column.gaps, BINS) / counts
        return float(np.abs(accuracy[bins] - column.p).mean())

    @property
    def area(self) -> float:
        """−E[ln(1 − G)·error]."""
        (column,) = self.columns
        surer = 1 - (np.arange(_RANKS) + 0.5) / _RANKS
        return float(np.mean(-np.log(surer) * (1 - column.p - column.gaps)))

    @cached_property
    def smooth(self) -> float:
        """The σ that smECE_σ equals, on a grid."""
        (column,) = self.columns
        cells = np.rint(column.p * _CELLS).astype(np.intp)
        masses = np.bincount(cells, column.gaps / len(column.p), _CELLS + 1)
        masses[1:-1] /= 2
        spectrum = scipy.fft.dct(masses, type=1)

        def excess(bandwidth: float) -> float:
            return float(np.mean(np.abs(smooth_residuals(spectrum, bandwidth)))) - bandwidth

        narrow = 2 / _CELLS
        if excess(narrow) <= 0:
            return excess(narrow) + narrow
        return float(scipy.optimize.brentq(excess, narrow, 1.0))


class Classes(Population):
    """Softmax of logits from a law, K classes; the truth is another softmax."""

    def __init__(self, classes: int, truth: str, law: str = "normal") -> None:
        self.label = f"K = {classes:<3}{law:9}{truth:19}"
        self._classes, self._law = classes, LOGITS[law]
        self._known: dict[float, float] = {}
        self._slope, spread = CLASSES[truth]
        self._shift = spread * np.random.default_rng(1).standard_normal(classes)
        p, q = self.rows(max(2 * _RANKS // classes, 30_000), np.random.default_rng(2))
        self.columns = []
        for k in range(classes):
            order = np.argsort(p[:, k])
            self.columns.append(Column(p[order, k], (q - p)[order, k]))

    def rows(self, rows: int, rng: np.random.Generator) -> tuple[Values, Values]:
        """Return N rows of probabilities and the true probabilities, (N, K) each."""
        logits = self._law(rows, self._classes, rng)
        true = scipy.special.softmax(self._slope * logits + self._shift, axis=1)
        return scipy.special.softmax(logits, axis=1), true

    def draw(self, rows: int, rng: np.random.Generator) -> Predictions:
        p, q = self.rows(rows, rng)
        upto = np.cumsum(q, axis=1)
        labels = (upto[:, :-1] < rng.random((rows, 1))).sum(axis=1)
        return Predictions(p, labels, p.argmax(axis=1), np.zeros(rows), p)

    def joined(self, counts_km: NDArray[np.int64]) -> float:
        """Return 1/K Σ wg² over equal-width bins, joined downwards until they hold two rows.

        `counts_km` has the rows of a sample in each bin, (K, M).
        """
        total = 0.0
        for counts, bins in zip(counts_km.tolist(), self._cells, strict=True):
            # Rows of the sample, share and share times gap of each group of bins.
            groups = [[0, 0.0, 0.0]]
            for count, (share, gap) in zip(reversed(counts), reversed(bins), strict=True):
                if groups[-1][0] > 1:
                    groups.append([0, 0.0, 0.0])
                groups[-1] = [groups[-1][0] + count, groups[-1][1] + share, groups[-1][2] + gap]
            if len(groups) > 1 and groups[-1][0] < 2:
                rest = groups.pop()
                groups[-1] = [a + b for a, b in zip(groups[-1], rest, strict=True)]
            total += sum(gap**2 / share for _, share, gap in groups if share > 0)
        return total / len(counts_km)

    @cached_property
    def _cells(self) -> list[list[tuple[float, float]]]:
        """The share, and the share times the gap, of each equal-width bin, by class."""
        cells = []
        for column in self.columns:
            bins, rows = bin_indices(column.p, BINS), len(column.p)
            shares = np.bincount(bins, minlength=BINS) / rows
            gaps = np.bincount(bins, column.gaps, BINS) / rows
            cells.append(list(zip(shares.tolist(), gaps.tolist(), strict=True)))
        return cells

    def canonical(self, bandwidth: float) -> float:
        """Return the mean Σ_k |Σ k q/Σ k − p| over 4,000 rows."""
        if bandwidth not in self._known:
            p, q = self.rows(4_000, np.random.default_rng(3))
            distances = np.abs(kernel_means(p, q, bandwidth) - p).sum(axis=1)
            self._known[bandwidth] = float(distances.mean())
        return self._known[bandwidth]
