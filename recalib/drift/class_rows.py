"""Labelled predictions with the probabilities of watched classes, as a sparse matrix.

Legend: N rows, K classes of the model, W watched classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Numbers
from recalib.drift.row_groups import check_groups

Labels = NDArray[np.int64]

#: Up to this number of watched classes, every row counts for every class.
MAX_DENSE_CLASSES = 100
#: With more classes, a row counts for those with at least this probability: at most 100 of them.
MIN_PROBABILITY = 0.01


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Labelled predictions (N,).

    A stored entry of the matrix is a row that counts for a class, also if its value is 0.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from recalib.drift import ClassRows
    >>> p = csr_array([[0.9], [0.2]])
    >>> len(ClassRows(p, labels=np.array([0, -1]), times=np.arange(2.0)))
    2
    """

    #: Probabilities (N, W), a `scipy.sparse.csr_array`.
    probabilities: Any
    #: The number of the label among the watched classes, (N,); −1 for another class.
    labels: Labels
    #: Prediction times, (N,), in seconds.
    times: Numbers
    #: Numbers of groups, (N,), 0 for none; None without groups.
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: NDArray[np.floating[Any]],
        labels: ArrayLike,
        times: ArrayLike,
        classes: Sequence[int],
        excluded: ArrayLike | None = None,
        groups: NDArray[np.int64] | None = None,
    ) -> ClassRows:
        """Return the rows of calibrated probabilities.

        Parameters
        ----------
        probabilities: (N, K), in [0, 1].
        labels: class indices, (N,).
        times: prediction times, (N,), in seconds.
        classes: the indices of the watched classes, (W,).
        excluded: a class index for each row, (N,), whose entry is left out.
        groups: numbers of groups, (N,), 0 for none.
        """
        watched = np.asarray(classes, np.int64)
        values = probabilities[:, watched].astype(np.float64)
        is_stored = np.ones(values.shape, bool)
        if len(watched) > MAX_DENSE_CLASSES:
            is_stored = values >= MIN_PROBABILITY
        if excluded is not None:
            is_stored &= watched != np.asarray(excluded, np.int64)[:, None]
        rows, columns = np.nonzero(is_stored)
        return cls(
            _matrix(values[rows, columns], rows, columns, values.shape),
            watched_positions(np.asarray(labels, np.int64), watched),
            np.asarray(times, np.float64),
            groups,
        )

    @classmethod
    def from_top_labels(
        cls,
        confidences: ArrayLike,
        predicted: ArrayLike,
        labels: ArrayLike,
        times: ArrayLike,
        classes: Sequence[int],
        groups: NDArray[np.int64] | None = None,
    ) -> ClassRows:
        """Return the rows of predictions with only a known top label.

        A row counts for the class that was predicted, if it is watched.

        Parameters
        ----------
        confidences: the probability of the predicted class, (N,).
        predicted: class indices, (N,).
        labels, times, classes, groups: as in `from_probabilities`.
        """
        watched = np.asarray(classes, np.int64)
        columns = watched_positions(np.asarray(predicted, np.int64), watched)
        is_watched = columns >= 0
        columns = columns[is_watched]
        values = np.asarray(confidences, np.float64)[is_watched]
        return cls(
            _matrix(values, np.arange(len(values)), columns, (len(values), len(watched))),
            watched_positions(np.asarray(labels, np.int64)[is_watched], watched),
            np.asarray(times, np.float64)[is_watched],
            None if groups is None else groups[is_watched],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[ClassRows]) -> ClassRows:
        """Return the rows of all parts, at least one, in their order."""
        return cls(
            scipy.sparse.vstack([part.probabilities for part in parts], format="csr"),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([check_groups(part.groups, len(part)) for part in parts]),
        )

    def sort_by_time(self) -> ClassRows:
        """Return the rows in the order of their times."""
        return self.select(np.argsort(self.times, kind="stable"))

    def select(self, index: NDArray[Any]) -> ClassRows:
        """Return the rows of an index or a mask."""
        groups = None if self.groups is None else self.groups[index]
        return ClassRows(self.probabilities[index], self.labels[index], self.times[index], groups)


def _matrix(
    values: Numbers, rows: NDArray[np.intp], columns: NDArray[Any], shape: tuple[int, ...]
) -> Any:
    """Return a CSR matrix of entries sorted by row; zeros are stored too."""
    starts = np.searchsorted(rows, np.arange(shape[0] + 1))
    return scipy.sparse.csr_array((values, columns, starts), shape=shape)


def watched_positions(labels: Labels, watched: Labels) -> Labels:
    """Return the position of each label among the watched classes, −1 for another class."""
    order = np.argsort(watched)
    where = np.minimum(np.searchsorted(watched, labels, sorter=order), len(watched) - 1)
    return np.where(watched[order[where]] == labels, order[where], -1)
