"""Offsets of probabilities by segment, such as a country or a device.

Legend: N rows, K classes, G segments.
"""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.core.card import Card, SegmentSummary
from recalib.core.segment_columns import UNNAMED, segment_columns
from recalib.errors import CorruptError, InputError, RecalibWarning
from recalib.ops import NumpyOps

_Floats = TypeVar("_Floats", bound=np.floating[Any])

#: The name of the offsets among the parameters of a calibrator: (G, 1 + K), in the order of the
#: card's segments.
OFFSETS = "segment_offsets"


def membership(masks: list[NDArray[np.bool_]]) -> Any:
    """Return the sparse matrix (N, G) of the rows (N,) of each segment."""
    return scipy.sparse.csr_array(np.stack(masks, axis=1)).astype(np.float64)


def log_of(probabilities: NDArray[Any]) -> Numbers:
    """Return log p, −inf where p is 0, in float64."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities.astype(np.float64))


def log_adjusted(log_p: Numbers, of_rows: Numbers) -> Numbers:
    """Return log q (N, K), q = softmax(eᵃ·log p + b).

    Parameters
    ----------
    of_rows: (N, 1 + K) or (1, 1 + K): a and b, each summed over the segments of a row.
    """
    return scipy.special.log_softmax(_scores(log_p, of_rows), axis=1)


def adjust(probabilities: NDArray[_Floats], of_rows: Numbers) -> NDArray[_Floats]:
    """Return q (N, K) of `log_adjusted` in the dtype of p; rows without an offset stay as p."""
    wide = NumpyOps().softmax(_scores(log_of(probabilities), of_rows))
    adjusted: NDArray[_Floats] = wide.astype(probabilities.dtype, copy=False)
    has_offset = of_rows.any(axis=1, keepdims=True)
    return adjusted if has_offset.all() else np.where(has_offset, adjusted, probabilities)


def _scores(log_p: Numbers, of_rows: Numbers) -> Numbers:
    return np.exp(of_rows[:, :1]) * log_p + of_rows[:, 1:]


def offsets_of(summary: SegmentSummary, offsets: Numbers, segments: Any, rows: int) -> Numbers:
    """Return the sums (N, 1 + K) of the offsets (G, 1 + K) of each row's segments.

    Raises
    ------
    InputError: other columns than those of the fit, or values that are no segments.
    """
    columns, wanted = segment_columns(segments, rows), summary.columns
    if len(wanted) == len(columns) == 1 and UNNAMED in (*wanted, *columns):
        columns = dict(zip(wanted, columns.values(), strict=True))
    if missing := [name for name in wanted if name not in columns]:
        found, accepted = f"none of {', '.join(missing)}", f"values of {', '.join(wanted)}"
        raise InputError("segments", found=found, accepted=accepted)
    names = [(segment.column, segment.value) for segment in summary.segments]
    for name in wanted:
        known = {value for column, value in names if column == name}
        if unseen := {*columns[name].tolist()} - known - {""}:
            message = f"segments: {name} has values that the fit has not seen: "
            message += f"{', '.join(sorted(unseen)[:5])}; these rows get no offset for it"
            warnings.warn(message, RecalibWarning, stacklevel=4)
    return membership([columns[name] == value for name, value in names]) @ offsets


def check_offsets(card: Card, offsets: Numbers | None) -> None:
    """Raise `CorruptError` for offsets that do not belong to the segments of a card.

    Thresholds of sets and of rejection are of the common map: no fit gives both.
    """
    summary = card.segments
    if summary is None or offsets is None:
        raise CorruptError("segments and their offsets: one of the two is missing")
    shape = len(summary.segments), 1 + card.classes
    if offsets.shape != shape or not shape[0] or not np.isfinite(offsets).all():
        raise CorruptError(f"parameter {OFFSETS} is not finite, or not of shape {shape}")
    if {segment.column for segment in summary.segments} != {*summary.columns}:
        raise CorruptError(f"segments are not of the columns {', '.join(summary.columns)}")
    if card.task != "multiclass" or card.sets is not None or card.rejection is not None:
        raise CorruptError("segments of independent labels, or with thresholds of rows")
