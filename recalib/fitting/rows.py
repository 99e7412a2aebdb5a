"""The rows of a fit: arrays in memory, chunks on a device, fragments of files.

Solvers read rows by sums of kernels, so that one solver fits them wherever they are. A kernel is
written once, in functions that NumPy and torch share.

Legend: N rows, n rows of a block, K classes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.fitting.log_odds import Groups, ScaledRows, is_accepted

#: Elements of one chunk: two float64 arrays of it fit into a second-level cache of 1 MiB.
CHUNK = 32_768
#: Elements from which a pass is shared out to threads: below, starting them costs more.
_SHARED = 20 * CHUNK
#: Elements of a chunk where the spread of the logits is measured, to bound memory.
_SCALE_CHUNK = 4_000_000
#: Elements of a sample of rows that gives the scale, and the least rows of it.
_SCALE_SAMPLE, _SCALE_ROWS = 20_000, 100
#: Rows of the sample of arrays, and rows from which a search begins with it.
_SAMPLE, _SAMPLED = 2_000, 8_000


class Block(NamedTuple):
    """Some rows, as arrays of NumPy or tensors of torch."""

    #: (n, K).
    logits: Any
    #: (n,).
    labels: Any
    #: (n,); None if all are 1.
    weights: Any = None
    #: (n,), the largest logit of each row, if it is known: of short rows it takes long.
    tops: Any = None

    def parts(self, rows: int) -> Iterator[Block]:
        """Yield blocks of at most this number of rows, from the first."""
        if len(self.labels) <= rows:
            yield self
            return
        for start in range(0, len(self.labels), rows):
            at = slice(start, start + rows)
            yield Block(*(None if values is None else values[at] for values in self))

    @property
    def counts(self) -> Numbers:
        """(n,): the weights, which are 1 by default."""
        return np.ones(len(self.labels)) if self.weights is None else self.weights


#: A function of a block whose values are summed.
Kernel = Callable[[Block], Numbers]


class Rows(Protocol):
    """The rows of a fit, which a solver reads by sums."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        ...

    @property
    def weight(self) -> float:
        """Σ w: the number of rows that penalties and smoothing see, see `check_weights`."""
        ...

    @property
    def in_memory(self) -> ArrayRows | None:
        """The rows if they are in memory, where a solver may keep what a pass computes."""
        ...

    @property
    def scale(self) -> float:
        """The unit of the logits, see `logit_scale`; 0 if those of each row are equal."""
        ...

    @property
    def sample(self) -> ArrayRows | None:
        """Evenly spaced rows among these, for a start; None if all are as cheap."""
        ...

    @property
    def largest(self) -> float | None:
        """The largest |z| of a class that is not masked; None if no class is masked."""
        ...

    def sum(self, kernel: Kernel, *, whole: bool = False) -> Numbers:
        """Return the sum over blocks of rows of a function, in float64.

        Parameters
        ----------
        whole: arrays are one block, for a function of all rows.
        """
        ...

    def groups(self, temperature: float, target: str | None = None) -> Groups:
        """Return rows and hits by the log-odds of the prediction, or of class 1 of two.

        Parameters
        ----------
        temperature: divides the logits.
        target: `positive_class` for class 1.
        """
        ...

    def class_groups(self, temperature: float) -> Iterator[Groups]:
        """Yield rows and hits by the log-odds of each class."""
        ...

    def accepted(self, temperature: float, threshold: float) -> Rows:
        """Return the rows whose prediction has at least these log-odds."""
        ...


class ArrayRows:
    """Rows in memory.

    Parameters
    ----------
    logits: (N, K), checked; −inf masks a class.
    labels: (N,), checked.
    weights: (N,), positive; None if all are 1.
    """

    def __init__(self, logits: Floats, labels: Integers, weights: Numbers | None = None) -> None:
        self.logits, self.labels, self.weights = logits, labels, weights
        self.shape = len(labels), int(logits.shape[1])
        self.weight = float(len(labels) if weights is None else weights.sum())
        #: All rows; `scale` adds the tops.
        self.block = Block(logits, labels, weights)

    @property
    def in_memory(self) -> ArrayRows | None:
        return self

    @cached_property
    def scale(self) -> float:
        blocks = self.block.parts(max(1, _SCALE_CHUNK // self.shape[1]))
        lowest, tops, spreads = zip(
            *map(ends_and_spreads, map(attrgetter("logits"), blocks)), strict=True
        )
        self.block = self.block._replace(tops=np.concatenate(tops))
        by_row = np.concatenate(spreads).astype(np.float64)
        spread = float(np.average(by_row, weights=self.weights))
        # Rounding error in the mean of equal numbers is not a spread.
        epsilon = float(np.finfo(self.logits.dtype).eps)
        noise = epsilon * max(abs(min(lowest)), abs(float(self.block.tops.max())))
        return logit_scale(self.logits, self.weights, spread) if spread > noise else 0.0

    @property
    def sample(self) -> ArrayRows | None:
        if len(self.labels) <= _SAMPLED:
            return None
        # Evenly spaced rows are deterministic and independent of sorted blocks in the file.
        return self.subset(np.linspace(0, len(self.labels) - 1, _SAMPLE).astype(np.intp))

    @property
    def largest(self) -> float | None:
        if not np.isneginf(self.logits.min()):
            return None
        blocks = (block.logits for block in self.block.parts(max(1, _SCALE_CHUNK // self.shape[1])))
        return max(float(np.abs(z[np.isfinite(z)]).max(initial=0.0)) for z in blocks)

    def subset(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> ArrayRows:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return ArrayRows(self.logits[rows], self.labels[rows], weights)

    def groups(self, temperature: float, target: str | None = None) -> Groups:
        return self._scaled(temperature).groups(target)

    def class_groups(self, temperature: float) -> Iterator[Groups]:
        return self._scaled(temperature).class_groups()

    def _scaled(self, temperature: float) -> ScaledRows:
        return ScaledRows(self.logits, self.labels, self.block.counts, temperature)

    def accepted(self, temperature: float, threshold: float) -> ArrayRows:
        return self.subset(is_accepted(self.logits, temperature, threshold))

    def sum(self, kernel: Kernel, *, whole: bool = False) -> Numbers:
        threads = 1 if whole or self.logits.size <= _SHARED else os.cpu_count() or 1
        if threads == 1:
            return kernel(self.block)
        blocks = self.block.parts(-(-len(self.labels) // threads))
        with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of the interpreter in its loops
            return np.asarray(sum(pool.map(kernel, blocks)))


def namespace(array: Any) -> Any:
    """Return the module that computes with an array: NumPy, or torch for a tensor."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def as_numbers(array: Any) -> Numbers:
    """Return an array of NumPy or a tensor in float64 in memory."""
    return np.asarray(array if isinstance(array, np.ndarray) else array.cpu(), np.float64)


def logit_scale(logits: Floats, weights: Numbers | None, spread: float) -> float:
    """Return the median over evenly spaced rows of max z − median z, masked classes left out.

    Parameters
    ----------
    weights: (N,), positive; a row of weight w is as w rows. None if all are 1.
    spread: what replaces a median of 0, as of rows with one high logit among ties.
    """
    rows, classes = logits.shape
    ends = np.arange(1.0, rows + 1) if weights is None else np.cumsum(weights)
    count = max(1, int(min(ends[-1], max(_SCALE_ROWS, _SCALE_SAMPLE // classes))))
    places = np.linspace(0, max(ends[-1] - 1, 0.0), count)
    ordered = np.sort(logits[np.searchsorted(ends[:-1], places, "right")], axis=1)
    unmasked = np.count_nonzero(ordered != -np.inf, axis=1)
    middle = ordered[np.arange(count), classes - 1 - unmasked // 2]
    scale = float(np.median(ordered[:, -1].astype(np.float64) - middle))
    return scale if scale > 0 else spread


def ends_and_spreads(logits: Floats) -> tuple[float, Floats, Floats]:
    """Return the least finite logit, and max z and max z − mean z of each row (N,)."""
    lowest, tops = float(logits.min()), logits.max(axis=1)
    if np.isfinite(lowest):
        means = np.einsum("ij->i", logits, dtype=np.float64) / logits.shape[1]
        return lowest, tops, tops - means
    finite = np.isfinite(logits)
    unmasked = np.where(finite, logits, 0.0).astype(np.float64)
    spread = tops - unmasked.sum(axis=1) / finite.sum(axis=1)
    return float(unmasked.min()), tops, spread
