"""Prediction sets: for each row the classes that hold its label with a stated probability."""

from recalib.core.card import PredictionSets, SetOptions
from recalib.sets.conformal import (
    SetCoverage,
    conformal_sets,
    coverage_options,
    describe_sets,
    evaluate_sets,
    prediction_sets,
)
from recalib.sets.scores import SCORES

__all__ = [
    "SCORES",
    "PredictionSets",
    "SetCoverage",
    "SetOptions",
    "conformal_sets",
    "coverage_options",
    "describe_sets",
    "evaluate_sets",
    "prediction_sets",
]
