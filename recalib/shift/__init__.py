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
from recalib.shift.shadow import Shadow, ShadowState, answers_given, begin_shadow

__all__ = [
    "Adaptation",
    "AdaptationSummary",
    "AdaptedStream",
    "FixedShare",
    "LabelShift",
    "Shadow",
    "ShadowState",
    "adapt",
    "answers_given",
    "begin_shadow",
    "first_adaptation",
    "gains",
    "next_adaptation",
    "window_rows",
]
