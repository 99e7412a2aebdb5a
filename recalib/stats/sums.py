"""Sums over rows, with and without weights w, of scores or of confidences p with their events y.

A weight is how many rows of the population a row stands for. Values are weighted means; their
variances need the same sums with w² for w. Without weights w is 1, and both are the same sums. Sums
of chunks, processes and days merge into the sums of all rows. Sums are float64, counts are exact.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Numbers
from recalib.stats.bin_indices import bin_indices
from recalib.stats.cells import CELLS, cell_indices
from recalib.stats.groups import group_counts, group_sums, row_chunks

#: Σw: the number of rows, if they have no weights.
Weights = Numbers | NDArray[np.int64]


class Moments(NamedTuple):
    """Sums over the rows of each bin, arrays of one shape."""

    #: Σw, Σwp, Σwp², Σwy and Σwpy.
    weight: Weights
    confidence: Numbers
    confidence_squared: Numbers
    correct: Weights
    confidence_correct: Numbers

    def add(self, other: Moments) -> None:
        """Add sums in place."""
        for total, sums in zip(self, other, strict=True):
            total += sums

    def select(self, bins: NDArray[Any]) -> Moments:
        """Return the sums of some bins, by a mask."""
        return Moments(*(sums[bins] for sums in self))

    def by_event(self) -> Numbers:
        """Return Σw of wrong and of right rows, (2, ...)."""
        return np.stack([self.weight - self.correct, self.correct])

    def residual_squares(self) -> Numbers:
        """Return Σw(y − p)² of each bin."""
        return np.maximum(self.correct - 2 * self.confidence_correct + self.confidence_squared, 0)

    def calibrated_squares(self) -> Numbers:
        """Return Σwp(1 − p) of each bin."""
        return np.maximum(self.confidence - self.confidence_squared, 0)

    def with_whole_weight(self) -> Moments:
        """Return the sums with an integer weight, if it is below 2⁵³."""
        if self.weight.sum() >= 2**53:
            return self
        return self._replace(weight=np.rint(self.weight).astype(np.int64))

    def merge(self, where: NDArray[np.intp], bins: int) -> Moments:
        """Return the sums of wider bins; `where` has the new bin of each."""
        return Moments(*(group_sums(where, sums, bins) for sums in self))


def moments(
    where: NDArray[np.intp], p: Floats, y: NDArray[np.bool_], w: Numbers | None, bins: int
) -> Moments:
    """Return the sums of rows (n,) in the bins `where` (n,); without weights, w is 1."""
    # Wrong and right rows of a bin have separate cells, so few counts give all sums.
    cells = 2 * where + y
    p = p.astype(np.float64, copy=False)
    wp = p if w is None else w * p
    weight: Weights = group_counts(cells, 2 * bins)
    if w is not None:
        weight = group_sums(cells, w, 2 * bins)
    wrong, right = weight.reshape(bins, 2).T
    # Sums of two columns, which take a tenth of the time of `sum` over an axis of two.
    wrong_p, right_p = group_sums(cells, wp, 2 * bins).reshape(bins, 2).T
    wrong_squares, right_squares = group_sums(cells, wp * p, 2 * bins).reshape(bins, 2).T
    squares = wrong_squares + right_squares
    return Moments(wrong + right, wrong_p + right_p, squares, right, right_p)


class State:
    """Sums of constant size, for any number of rows.

    Examples
    --------
    >>> from recalib.metrics import METRICS
    >>> first, second = (METRICS["ece"]().state(classes=3) for _ in range(2))
    >>> first.merge(second) == first
    True
    """

    #: Names of the attributes that are sums over rows: numbers or arrays. Other attributes do not
    #: depend on rows.
    sums: tuple[str, ...]

    def merge(self, other: Self) -> Self:
        """Return the state of the rows of both, which must not share rows; neither changes.

        Raises
        ------
        ValueError: the states have different shapes.
        """
        shapes = [[np.shape(getattr(state, name)) for name in self.sums] for state in (self, other)]
        if shapes[0] != shapes[1]:
            raise ValueError("states of different classes or bins cannot be merged")
        merged = copy(self)
        for name in self.sums:
            setattr(merged, name, getattr(self, name) + getattr(other, name))
        return merged

    def __eq__(self, other: object) -> bool:
        """Return whether the sums are equal."""
        if type(self) is not type(other):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.sums)

    __hash__ = None  # type: ignore[assignment]


class Means(State):
    """Sums of the scores x of rows: `totals` has N, Σw, Σw², Σwx, Σw²x and Σw²x²."""

    sums = ("totals",)

    def __init__(self) -> None:
        self.totals = np.zeros(6)

    @property
    def count(self) -> int:
        """N."""
        return int(self.totals[0])

    def add(self, scores: NDArray[Any], weights: Numbers | None = None) -> None:
        """Add rows by their scores and weights (n,)."""
        x, count = scores.astype(np.float64, copy=False), len(scores)
        if weights is None:
            total = x.sum()
            self.totals += np.array([count, count, count, total, total, x @ x])
            return
        wx = weights * x
        products = weights @ weights, wx.sum(), (weights * wx).sum(), wx @ wx
        self.totals += np.array([count, weights.sum(), *products])


class BinSums(State):
    """Sums of confidences p and correctness y of rows in bins of p; arrays of one shape.

    `count` is the number of rows. They determine ECE, related errors and their intervals, and do
    not reveal single rows.

    Parameters
    ----------
    shape: of the bins.
    weighted: whether rows have weights; sums with w² are kept too.
    """

    count: NDArray[np.int64]
    confidence: Numbers
    confidence_squared: Numbers
    correct: Numbers
    confidence_correct: Numbers

    def __init__(self, shape: tuple[int, ...], weighted: bool) -> None:
        self.weighted = weighted
        self.sums = ("count", *Moments._fields[1:])
        if self.weighted:
            squared = (f"squared_{name}" for name in Moments._fields)
            self.sums = (*self.sums, "weight", *squared, "fractional")
        for name in self.sums:
            setattr(self, name, np.zeros(shape))
        self.count = np.zeros(shape, np.int64)
        #: Rows whose weight is not whole.
        self.fractional = 0

    @property
    def moments(self) -> Moments:
        """The sums with weights w."""
        weight = "weight" if self.weighted else "count"
        return Moments(*(getattr(self, name) for name in (weight, *Moments._fields[1:])))

    @property
    def squared(self) -> Moments:
        """The sums with weights w²; those of `moments` if rows have no weights."""
        if not self.weighted:
            return self.moments
        return Moments(*(getattr(self, f"squared_{name}") for name in Moments._fields))

    @property
    def filled(self) -> NDArray[np.bool_]:
        """The bins that hold at least one row, as a mask."""
        return self.count > 0

    def weights_of(self, rows: int, weights: Numbers | None) -> Numbers | None:
        """Return the weights of rows, None if this state has none, and count fractions."""
        if not self.weighted:
            if weights is not None:
                raise ValueError("a state of rows without weights takes none")
            return None
        weights = np.ones(rows) if weights is None else weights
        self.fractional += int(np.count_nonzero(weights != np.rint(weights)))
        return weights


class Bins(BinSums):
    """The sums in M equal-width bins, (M,); weighted or not."""

    def __init__(self, bins: int, *, weighted: bool = False) -> None:
        super().__init__((bins,), weighted)
        self.bins = bins

    def add(
        self, confidences: Floats, correct: NDArray[np.bool_], weights: Numbers | None = None
    ) -> None:
        """Add rows by their confidences in [0, 1], correctness and weights, (n,)."""
        weights = self.weights_of(len(correct), weights)
        for rows in row_chunks((len(correct), 1)):
            p, w = confidences[rows], None if weights is None else weights[rows]
            self._add_chunk(self._bins_of(p), p, correct[rows], w)

    def _add_chunk(
        self, where: NDArray[np.intp], p: Floats, correct: NDArray[np.bool_], w: Numbers | None
    ) -> None:
        self.moments.add(moments(where, p, correct, w, self.bins))
        if w is not None:
            self.count += group_counts(where, self.bins)
            self.squared.add(moments(where, p, correct, w * w, self.bins))

    def _bins_of(self, confidences: Floats) -> NDArray[np.intp]:
        return bin_indices(confidences, self.bins)

    def join(self, parts: int) -> Bins:
        """Return the sums of each `parts` consecutive bins."""
        joined = Bins(self.bins // parts, weighted=self.weighted)
        for name in self.sums:
            sums = getattr(self, name)
            is_number = np.ndim(sums) == 0
            setattr(joined, name, sums if is_number else sums.reshape(-1, parts).sum(axis=1))
        return joined


class RootBins(Bins):
    """Bins of equal width on a square-root scale, for probabilities of a rare class."""

    def _bins_of(self, confidences: Floats) -> NDArray[np.intp]:
        return bin_indices(np.sqrt(confidences), self.bins)


class Cells(Bins):
    """The sums of `Bins` in the cells of `recalib.stats.cells`: 40 bytes each without weights."""

    def __init__(self, *, weighted: bool = False) -> None:
        super().__init__(CELLS, weighted=weighted)

    def _bins_of(self, confidences: Floats) -> NDArray[np.intp]:
        return cell_indices(confidences)
