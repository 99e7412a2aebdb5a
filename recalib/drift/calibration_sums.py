"""What monitoring keeps of predictions: sums by bin of confidence, which add up and never grow."""

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
    """Sums over the predictions of a cohort, or of many; arrays are (B,), one entry a bin.

    Bins are [edge, next edge) and cover [0, 1]; those at the calibration set's quantiles
    (`quantile_edges`) serve the label-free signal too. Nothing of a single prediction is kept, and
    sums of processes, hours and days add up to those of all their predictions.
    """

    #: Inner edges (B − 1,), ascending, inside (0, 1].
    edges: Values
    #: N, predictions made, whether or not their labels have come.
    traffic: Counts
    #: n, those whose labels have come. The rest is over these alone, with p the confidence and y
    #: whether the prediction was right.
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
        """Return the sums of nothing, over bins between these inner edges.

        Raises
        ------
        InputError: edges that do not ascend, or are not inside (0, 1].
        """
        checked = check_edges(edges)
        zeros = np.zeros(len(checked) + 1)
        counts = [zeros.astype(np.int64) for _ in range(3)]
        sums = [zeros.copy() for _ in range(4)]
        return cls(checked, counts[0], counts[1], counts[2], *sums)

    @property
    def bins(self) -> int:
        """B."""
        return len(self.edges) + 1

    def add_traffic(self, confidences: ArrayLike) -> None:
        """Count predictions by their confidences (N,), those that are labelled later included."""
        where = bin_indices(self.edges, check_confidences(confidences))
        self.traffic += np.bincount(where, minlength=self.bins)

    def add_counts(self, traffic: ArrayLike) -> None:
        """Count predictions by a histogram (B,) over the same bins."""
        counts = np.asarray(traffic)
        if counts.shape != (self.bins,) or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise InputError(
                "traffic",
                found=f"shape {counts.shape} of {counts.dtype}, or a negative count",
                accepted=f"({self.bins},) whole numbers, one for each bin",
            )
        self.traffic += counts.astype(np.int64)

    def add_labels(
        self, confidences: ArrayLike, correct: ArrayLike, delays: ArrayLike | None = None
    ) -> None:
        """Add labelled predictions; `traffic` counts them elsewhere.

        Parameters
        ----------
        confidences: (N,), in [0, 1].
        correct: (N,), zeros and ones or booleans.
        delays: (N,), seconds from prediction to label; clocks may differ, so that one below 0
            counts as 0. Taken for 0 where not given.

        Raises
        ------
        InputError: shapes that differ, or values out of range. Nothing is added then.
        """
        p, y = check_rows(confidences, correct)
        waited = np.zeros_like(p) if delays is None else np.asarray(delays, np.float64)
        if waited.shape != p.shape or not np.isfinite(waited).all():
            raise InputError(
                "delays",
                found=f"shape {waited.shape}, or a value that is not finite",
                accepted=f"{p.shape}, seconds",
            )
        where = bin_indices(self.edges, p)

        def total(of: Values) -> Values:
            return np.bincount(where, of, self.bins).astype(np.float64)

        self.labelled += np.bincount(where, minlength=self.bins)
        self.correct += np.bincount(where[y == 1], minlength=self.bins)
        self.confidence += total(p)
        self.confidence_squared += total(p * p)
        self.confidence_correct += total(p * y)
        self.delay += total(np.maximum(waited, 0))

    def merge(self, other: CalibrationSums) -> None:
        """Add what other sums have seen; no prediction must be in both.

        Raises
        ------
        InputError: other bins.
        """
        if not np.array_equal(self.edges, other.edges):
            raise InputError("edges", found=str(other.edges), accepted=f"{self.edges}, as here")
        for name in (*_COUNTS, *_FLOATS):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_dict(self) -> dict[str, list[float]]:
        """Return all of it as JSON."""
        return {name: getattr(self, name).tolist() for name in ("edges", *_COUNTS, *_FLOATS)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return what `to_dict` returned as sums again, to the last digit."""
        sums = cls.empty(saved["edges"])
        for names, dtype in ((_COUNTS, np.int64), (_FLOATS, np.float64)):
            for name in names:
                values = np.array(saved[name], dtype)
                if values.shape != (sums.bins,):
                    accepted = f"({sums.bins},), one for each bin"
                    raise InputError(name, found=f"shape {values.shape}", accepted=accepted)
                setattr(sums, name, values)
        return sums


def bin_indices(edges: Values, confidences: Values) -> NDArray[np.intp]:
    """Return which bin [edge, next edge) each confidence is in; `edges` are the inner ones."""
    return np.searchsorted(edges, confidences, side="right")


def check_edges(edges: ArrayLike) -> Values:
    """Return inner edges (B − 1,) as float64; none at all makes one bin.

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
