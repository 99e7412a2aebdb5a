"""Shift of class shares: answers adapted to it while serving."""

from recalib.shift.adapted_stream import AdaptationSummary, AdaptedStream
from recalib.shift.fixed_share import FixedShare
from recalib.shift.label_shift import (
    Adaptation,
    LabelShift,
    adapt,
    first_adaptation,
    gains,
    next_adaptation,
    window_rows,
)

__all__ = [
    "Adaptation",
    "AdaptationSummary",
    "AdaptedStream",
    "FixedShare",
    "LabelShift",
    "adapt",
    "first_adaptation",
    "gains",
    "next_adaptation",
    "window_rows",
]
