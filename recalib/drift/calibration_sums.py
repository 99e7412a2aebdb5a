"""Sums over predictions by bin of confidence, the sufficient statistics of monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.array_bytes import state_from_bytes, state_to_bytes
from recalib.core.arrays import Numbers
from recalib.drift.validation import check_confidences, check_finite_array, check_rows
from recalib.errors import CorruptError, InputError
from recalib.stats.groups import group_counts, group_sums
from recalib.stats.sums import Moments, moments

Counts = NDArray[np.int64]

#: The names of `Moments`.
_LABELLED = ("weight", "confidence", "confidence_squared", "correct", "confidence_correct")
_COUNTS = ("traffic", "traffic_confidence_count", "labelled")
_FLOATS = ("traffic_confidence", "delay", *_LABELLED)
#: Sums of traffic that earlier versions did not keep.
_LATER = ("traffic_confidence_count", "traffic_confidence")
_TRAFFIC = ("traffic", *_LATER)
#: What the bytes are, and the version of the sums.
_KIND, _VERSION = "calibration sums", 1


@dataclass(eq=False)
class CalibrationSums:
    """Sums over the predictions of one or more cohorts; arrays are (B,), one entry per bin.

    Bins are [edge, next edge) and cover [0, 1]. Bins at the quantiles of the calibration set
    (`quantile_edges`) also give the PSI. No single prediction is stored, the size is constant, and
    sums of different processes and times can be merged. `merge` is associative: counts are exact,
    and other sums have errors of rounding that depend on the order. Arrays are never changed, so
    states can share them.

    Examples
    --------
    >>> from recalib.drift import CalibrationSums
    >>> sums = CalibrationSums.empty([0.5, 0.9])
    >>> sums.add_counts([10, 20, 70])
    >>> sums.add_labels([0.6, 0.95], [0, 1])
    >>> sums.traffic, sums.labelled
    (array([10, 20, 70]), array([0, 1, 1]))
    """

    #: Inner edges (B − 1,), ascending, inside (0, 1].
    edges: Numbers
    #: N, the number of predictions, with and without labels.
    traffic: Counts
    #: The number of these predictions whose confidence is in the next sum; earlier versions only
    #: counted predictions.
    traffic_confidence_count: Counts
    #: Σp of all predictions, with and without labels.
    traffic_confidence: Numbers
    #: The number of labelled predictions. All sums below are over these alone.
    labelled: Counts
    #: Σ of the seconds from prediction to label.
    delay: Numbers
    #: n = Σw, the number of them where each group counts once: w is 1, or 1 / the size of the
    #: prediction's group. p is the confidence and y is 1 if the prediction was correct, else 0.
    weight: Numbers
    #: Σwp.
    confidence: Numbers
    #: Σwp².
    confidence_squared: Numbers
    #: Σwy.
    correct: Numbers
    #: Σwpy.
    confidence_correct: Numbers

    @classmethod
    def empty(cls, edges: ArrayLike) -> Self:
        """Return zero sums over the bins between these inner edges.

        Raises
        ------
        InputError: the edges do not ascend, or are not inside (0, 1].
        """
        checked = check_edges(edges)
        bins = len(checked) + 1
        fields: dict[str, Any] = {name: np.zeros(bins, np.int64) for name in _COUNTS}
        fields |= {name: np.zeros(bins) for name in _FLOATS}
        return cls(checked, **fields)

    @property
    def bins(self) -> int:
        """The number of bins, B."""
        return len(self.edges) + 1

    def add_traffic(self, confidences: ArrayLike) -> None:
        """Count predictions by their confidences (N,), whether or not they get labels."""
        checked = check_confidences(confidences)
        where = left_closed_bins(self.edges, checked)
        counts = group_counts(where, self.bins)
        self.traffic = self.traffic + counts
        self.traffic_confidence_count = self.traffic_confidence_count + counts
        self.traffic_confidence = self.traffic_confidence + group_sums(where, checked, self.bins)

    def add_counts(
        self,
        traffic: ArrayLike,
        confidence: ArrayLike | None = None,
        confidence_count: ArrayLike | None = None,
    ) -> None:
        """Add a histogram (B,) of predictions over the same bins.

        Parameters
        ----------
        confidence: Σp of these predictions (B,), None if it is unknown.
        confidence_count: the number of these predictions in Σp (B,); by default all.

        Raises
        ------
        InputError: another shape, or a negative count; nothing is added.
        """
        counts = self._check_counts("traffic", traffic)
        if confidence is not None:
            known = counts
            if confidence_count is not None:
                known = self._check_counts("confidence_count", confidence_count)
            total = np.asarray(confidence, np.float64)
            check_finite_array("confidence", total, (self.bins,), "one per bin")
            self.traffic_confidence_count = self.traffic_confidence_count + known
            self.traffic_confidence = self.traffic_confidence + total
        self.traffic = self.traffic + counts

    def _check_counts(self, field: str, values: ArrayLike) -> Counts:
        counts = np.asarray(values)
        if counts.shape != (self.bins,) or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise InputError(
                field,
                found=f"shape {counts.shape} of {counts.dtype}, or a negative count",
                accepted=f"({self.bins},) integers, one per bin",
            )
        return counts.astype(np.int64)

    def add_labels(
        self,
        confidences: ArrayLike,
        correct: ArrayLike,
        delays: ArrayLike | None = None,
        weights: Numbers | None = None,
    ) -> None:
        """Add labelled predictions; `traffic` does not change.

        Parameters
        ----------
        confidences: (N,), in [0, 1].
        correct: (N,), zeros and ones or booleans.
        delays: (N,), seconds from prediction to label, 0 by default. A negative delay counts as
            0: clocks may differ.
        weights: (N,), from 0, 1 by default.

        Raises
        ------
        InputError: shapes differ, or a value is out of range; nothing is added.
        """
        p, y = check_rows(confidences, correct)
        seconds = np.zeros_like(p) if delays is None else np.asarray(delays, np.float64)
        check_finite_array("delays", seconds, p.shape, "seconds")
        where = left_closed_bins(self.edges, p)
        added = moments(where, p, y == 1, weights, self.bins)
        for name, sums in zip(_LABELLED, added, strict=True):
            setattr(self, name, getattr(self, name) + sums)
        self.labelled = self.labelled + group_counts(where, self.bins)
        self.delay = self.delay + group_sums(where, np.maximum(seconds, 0), self.bins)

    @property
    def size(self) -> float:
        """The number of labels, where each group counts once."""
        return float(self.weight.sum())

    @property
    def seen(self) -> Counts:
        """Predictions of each bin: the traffic, or its labels if more of them came."""
        return np.maximum(self.traffic, self.labelled)

    @property
    def moments(self) -> Moments:
        """The sums over labelled predictions."""
        return Moments(*(getattr(self, name) for name in _LABELLED))

    def merge(self, other: CalibrationSums) -> CalibrationSums:
        """Return the sums of both over the same bins; no prediction may be in both.

        Raises
        ------
        InputError: the bins differ.
        """
        if not np.array_equal(self.edges, other.edges):
            raise InputError("edges", found=str(other.edges), accepted=f"{self.edges}")
        names = (*_COUNTS, *_FLOATS)
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def __eq__(self, other: object) -> bool:
        """Return whether edges and sums are equal."""
        if not isinstance(other, CalibrationSums):
            return NotImplemented
        names = ("edges", *_COUNTS, *_FLOATS)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def traffic_only(self, bins: NDArray[np.bool_] | None = None) -> CalibrationSums:
        """Return the sums over traffic of these bins, all by default, without those of labels."""
        sums = CalibrationSums.empty(self.edges)
        where = np.ones(self.bins, bool) if bins is None else bins
        for name in _TRAFFIC:
            setattr(sums, name, np.where(where, getattr(self, name), 0))
        return sums

    def without_traffic(self, part: CalibrationSums) -> CalibrationSums:
        """Return the sums without the traffic of `part`; those of labels do not change."""
        rest = {name: np.maximum(getattr(self, name) - getattr(part, name), 0) for name in _TRAFFIC}
        return replace(self, **rest)

    def to_bytes(self) -> bytes:
        """Return everything as safetensors with a version and a checksum."""
        names = ("edges", *_COUNTS, *_FLOATS)
        return state_to_bytes(_KIND, _VERSION, {name: getattr(self, name) for name in names})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the sums from what `to_bytes` returned.

        Raises
        ------
        CorruptError: other or damaged bytes, or those of another version of Recalib.
        """
        _, arrays = state_from_bytes(_KIND, [_VERSION], data)
        try:
            return cls.from_dict(arrays)
        except (InputError, KeyError) as error:
            raise CorruptError(f"not calibration sums: {error}") from None

    def to_dict(self) -> dict[str, list[float]]:
        """Return everything as JSON."""
        return {name: getattr(self, name).tolist() for name in ("edges", *_COUNTS, *_FLOATS)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the sums from what `to_dict` returned, exactly."""
        sums = cls.empty(saved["edges"])
        for names, dtype in ((_COUNTS, np.int64), (_FLOATS, np.float64)):
            for name in names:
                if name in _LATER and name not in saved:
                    continue
                # Earlier versions knew no groups: the weights are 1.
                source = "labelled" if name == "weight" and name not in saved else name
                values = np.array(saved[source], dtype)
                if values.shape != (sums.bins,):
                    accepted = f"({sums.bins},), one per bin"
                    raise InputError(name, found=f"shape {values.shape}", accepted=accepted)
                setattr(sums, name, values)
        return sums


def left_closed_bins(edges: Numbers, confidences: Numbers) -> NDArray[np.intp]:
    """Return the index of the bin [edge, next edge) of each confidence; `edges` are inner edges."""
    return np.searchsorted(edges, confidences, side="right")


def check_edges(edges: ArrayLike) -> Numbers:
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
