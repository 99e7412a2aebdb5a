"""Predictions by predicted class, and which classes have no useful labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.array_bytes import state_from_bytes, state_to_bytes
from recalib.core.arrays import Numbers
from recalib.drift.class_rows import watched_positions
from recalib.drift.silence import SilentClasses, is_silent
from recalib.errors import CorruptError, InputError
from recalib.stats.groups import group_counts, group_sums

Counts = NDArray[np.int64]

#: What the bytes of `ClassTraffic` are, and the version of its sums.
_KIND, _VERSION = "class traffic", 1


@dataclass(frozen=True)
class ClassWindow:
    """The predictions of one watched class in the latest window."""

    class_index: int
    predictions: int
    labelled: int
    #: Whether labels say nothing about it (`is_silent`).
    silent: bool
    #: Of the labelled predictions: the share that is right, and their mean confidence; None
    #: without labels.
    accuracy: float | None
    confidence: float | None


@dataclass(frozen=True, eq=False)
class ClassTraffic:
    """Sums over the predictions of one or more cohorts by predicted class, (W + 1,).

    The last entry is for the classes that are not watched. `merge` is associative: counts are
    exact, and other sums have errors of rounding that depend on the order.

    Examples
    --------
    >>> from recalib.drift import ClassTraffic
    >>> labelled = {'predicted': [2, 0], 'correct': [1, 1], 'confidences': [0.8, 0.9]}
    >>> traffic = ClassTraffic.from_rows([2], [3], [2.4], total=10, **labelled)
    >>> traffic.predictions, traffic.labelled
    (array([3, 7]), array([1, 1]))
    """

    #: N, with and without labels, and Σ max(p, 1 − p) of their confidences p.
    predictions: Counts
    max_errors: Numbers
    #: Of the labelled ones: their number n, the number of right ones, and Σp.
    labelled: Counts
    correct: Counts
    confidence: Numbers

    @property
    def size(self) -> float:
        """The number of labels."""
        return float(self.labelled.sum())

    @classmethod
    def empty(cls, watched: int) -> Self:
        """Return zero sums of W watched classes."""
        counts, sums = np.zeros(watched + 1, np.int64), np.zeros(watched + 1)
        return cls(counts, sums, counts, counts, sums)

    @classmethod
    def from_rows(
        cls,
        classes: Sequence[int],
        predictions: ArrayLike,
        max_errors: ArrayLike,
        total: int,
        predicted: ArrayLike,
        correct: ArrayLike,
        confidences: ArrayLike,
    ) -> Self:
        """Return the sums of a cohort.

        Parameters
        ----------
        classes: the indices of the watched classes, (W,).
        predictions, max_errors: of each watched class, (W,).
        total: the number of predictions of all classes.
        predicted, correct, confidences: of the labelled predictions, (n,): class indices, zeros and
            ones, and values in [0, 1].
        """
        counts, errors = np.asarray(predictions, np.int64), np.asarray(max_errors, np.float64)
        if not counts.shape == errors.shape == (len(classes),):
            accepted = f"({len(classes)},), one per watched class"
            found = f"shapes {counts.shape} and {errors.shape}"
            raise InputError("predictions", found=found, accepted=accepted)
        positions = watched_positions(np.asarray(predicted, np.int64), np.asarray(classes))
        positions[positions < 0] = len(classes)
        size = len(classes) + 1

        return cls(
            np.append(counts, max(total - counts.sum(), 0)),
            np.append(errors, 0.0),
            group_counts(positions, size),
            group_sums(positions, np.asarray(correct), size).astype(np.int64),
            group_sums(positions, np.asarray(confidences), size),
        )

    def merge(self, other: Self) -> Self:
        """Return the sums of both; no prediction may be in both."""
        names = (field.name for field in fields(self))
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))

    def silent(self) -> NDArray[np.bool_]:
        """Return which watched classes are silent, (W,)."""
        total = self._seen.sum()
        if not total:
            return np.zeros(len(self.predictions) - 1, bool)
        return is_silent(self.labelled[:-1], self._seen[:-1], self.labelled.sum() / total)

    def silent_classes(self, names: Sequence[str]) -> SilentClasses:
        """Return the traffic of the silent classes; `names` are those of the watched ones, (W,)."""
        where, total = np.flatnonzero(self.silent()), max(int(self._seen.sum()), 1)
        shares = {names[k]: int(self.predictions[k]) / total for k in where.tolist()}
        return SilentClasses(shares, float(self.max_errors[where].sum()) / total)

    def windows(self, classes: Sequence[int]) -> list[ClassWindow]:
        """Return the watched classes that were predicted."""
        silent = self.silent()
        return [
            ClassWindow(
                classes[k],
                int(self._seen[k]),
                int(n := self.labelled[k]),
                bool(silent[k]),
                int(self.correct[k]) / int(n) if n else None,
                float(self.confidence[k]) / int(n) if n else None,
            )
            for k in np.flatnonzero(self._seen[:-1]).tolist()
        ]

    def to_bytes(self) -> bytes:
        """Return everything as safetensors with a version and a checksum."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return state_to_bytes(_KIND, _VERSION, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the sums from what `to_bytes` returned.

        Raises
        ------
        CorruptError: other or damaged bytes, or those of another version of Recalib.
        """
        _, arrays = state_from_bytes(_KIND, [_VERSION], data)
        try:
            return cls(**arrays)
        except TypeError as error:
            raise CorruptError(f"not class traffic: {error}") from None

    def to_dict(self) -> dict[str, list[float]]:
        """Return everything as JSON: the entries that are not 0, and their positions."""
        where = np.flatnonzero(self._seen)
        return {
            "watched": [len(self.predictions) - 1],
            "positions": where.tolist(),
            **{field.name: getattr(self, field.name)[where].tolist() for field in fields(self)},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, list[float]]) -> Self:
        """Return the sums from what `to_dict` returned, exactly."""
        empty = cls.empty(int(saved["watched"][0]))
        columns = {field.name: getattr(empty, field.name).copy() for field in fields(cls)}
        for name, values in columns.items():
            values[np.array(saved["positions"], np.intp)] = saved[name]
        return cls(**columns)

    @property
    def _seen(self) -> Counts:
        """N; lost traffic may leave more labels than counted predictions."""
        return np.maximum(self.predictions, self.labelled)
