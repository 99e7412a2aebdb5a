"""Sums over predictions by bin of confidence, the sufficient statistics of monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.drift.validation import check_confidences, check_rows
from recalib.errors import InputError

__all__ = ["CalibrationSums", "bin_indices", "check_edges"]

Values = NDArray[np.float64]
Counts = NDArray[np.int64]

_COUNTS = ("traffic", "labelled", "correct")
_FLOATS = ("confidence", "confidence_squared", "confidence_correct", "delay")


@dataclass(eq=False)
class CalibrationSums:
    """Sums over the predictions of one or more cohorts; arrays are (B,), one entry per bin.

    Bins are [edge, next edge) and cover [0, 1]. Bins at the quantiles of the calibration set
    (`quantile_edges`) also give the PSI. No single prediction is stored, the size is constant, and
    sums of different processes and times can be merged.
    """

    #: Inner edges (B − 1,), ascending, inside (0, 1].
    edges: Values
    #: N, the number of predictions, with and without labels.
    traffic: Counts
    #: n, the number of labelled predictions. All sums below are over these alone; p is the
    #: confidence and y is 1 if the prediction was correct, else 0.
    labelled: Counts
    #: Σy.
    correct: Counts
    #: Σp.
    confidence: Values
    #: Σp².
    confidence_squared: Values
    #: Σpy.
    confidence_correct: Values
    #: Σ of the seconds from prediction to label.
    delay: Values

    @classmethod
    def empty(cls, edges: ArrayLike) -> Self:
        """Return zero sums over the bins between these inner edges.

        Raises
        ------
        InputError: the edges do not ascend, or are not inside (0, 1].
        """
        checked = check_edges(edges)
        zeros = np.zeros(len(checked) + 1)
        counts = [zeros.astype(np.int64) for _ in range(3)]
        sums = [zeros.copy() for _ in range(4)]
        return cls(checked, counts[0], counts[1], counts[2], *sums)

    @property
    def bins(self) -> int:
        """The number of bins, B."""
        return len(self.edges) + 1

    def add_traffic(self, confidences: ArrayLike) -> None:
        """Count predictions by their confidences (N,), whether or not they get labels."""
        where = bin_indices(self.edges, check_confidences(confidences))
        self.traffic += np.bincount(where, minlength=self.bins)

    def add_counts(self, traffic: ArrayLike) -> None:
        """Add a histogram (B,) of predictions over the same bins."""
        counts = np.asarray(traffic)
        if counts.shape != (self.bins,) or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise InputError(
                "traffic",
                found=f"shape {counts.shape} of {counts.dtype}, or a negative count",
                accepted=f"({self.bins},) integers, one per bin",
            )
        self.traffic += counts.astype(np.int64)

    def add_labels(
        self, confidences: ArrayLike, correct: ArrayLike, delays: ArrayLike | None = None
    ) -> None:
        """Add labelled predictions; `traffic` does not change.

        Parameters
        ----------
        confidences: (N,), in [0, 1].
        correct: (N,), zeros and ones or booleans.
        delays: (N,), seconds from prediction to label, 0 by default. A negative delay counts as
            0: clocks may differ.

        Raises
        ------
        InputError: shapes differ, or a value is out of range; nothing is added.
        """
        p, y = check_rows(confidences, correct)
        seconds = np.zeros_like(p) if delays is None else np.asarray(delays, np.float64)
        if seconds.shape != p.shape or not np.isfinite(seconds).all():
            raise InputError(
                "delays",
                found=f"shape {seconds.shape}, or a value that is not finite",
                accepted=f"{p.shape}, seconds",
            )
        where = bin_indices(self.edges, p)

        def total(values: Values) -> Values:
            return np.bincount(where, values, self.bins).astype(np.float64)

        self.labelled += np.bincount(where, minlength=self.bins)
        self.correct += np.bincount(where[y == 1], minlength=self.bins)
        self.confidence += total(p)
        self.confidence_squared += total(p * p)
        self.confidence_correct += total(p * y)
        self.delay += total(np.maximum(seconds, 0))

    def merge(self, other: CalibrationSums) -> None:
        """Add other sums over the same bins; no prediction may be in both.

        Raises
        ------
        InputError: the bins differ.
        """
        if not np.array_equal(self.edges, other.edges):
            raise InputError("edges", found=str(other.edges), accepted=f"{self.edges}")
        for name in (*_COUNTS, *_FLOATS):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_dict(self) -> dict[str, list[float]]:
        """Return everything as JSON."""
        return {name: getattr(self, name).tolist() for name in ("edges", *_COUNTS, *_FLOATS)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the sums from what `to_dict` returned, exactly."""
        sums = cls.empty(saved["edges"])
        for names, dtype in ((_COUNTS, np.int64), (_FLOATS, np.float64)):
            for name in names:
                values = np.array(saved[name], dtype)
                if values.shape != (sums.bins,):
                    accepted = f"({sums.bins},), one per bin"
                    raise InputError(name, found=f"shape {values.shape}", accepted=accepted)
                setattr(sums, name, values)
        return sums


def bin_indices(edges: Values, confidences: Values) -> NDArray[np.intp]:
    """Return the index of the bin [edge, next edge) of each confidence; `edges` are inner edges."""
    return np.searchsorted(edges, confidences, side="right")


def check_edges(edges: ArrayLike) -> Values:
    """Return inner edges (B − 1,) as float64; no edges make one bin.

    Raises
    ------
    InputError: they do not ascend, or are not inside (0, 1].
    """
    values = np.asarray(edges, np.float64)
    inside = values.ndim == 1 and bool(np.all((values > 0) & (values <= 1)))
    if not inside or np.any(np.diff(values) <= 0):
        raise InputError(
            "edges", found=str(values.tolist()), accepted="inner edges of bins, ascending in (0, 1]"
        )
    return values
