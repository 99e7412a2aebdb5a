"""Objectives of fits.

A new objective is one file in this package and one line in `OBJECTIVES`. Two tests then name what
is missing: a row in `docs/maps.md`, and an independent definition in
`tests/objectives/definitions.py`.
"""

from recalib.objectives.base import Objective
from recalib.objectives.brier import Brier
from recalib.objectives.classwise_scaled_nll import ClasswiseScaledNll
from recalib.objectives.ece_grid import EceGrid
from recalib.objectives.focal import Focal
from recalib.objectives.hard_binned_ece import HardBinnedEce
from recalib.objectives.label_smoothing import LabelSmoothing
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.objectives.soft_binned_ece import SoftBinnedEce

__all__ = ["OBJECTIVES", "Objective"]

OBJECTIVES: dict[str, type[Objective]] = {
    "nll": NegativeLogLikelihood,
    "classwise_scaled_nll": ClasswiseScaledNll,
    "brier": Brier,
    "sb_ece": SoftBinnedEce,
    "hb_ece": HardBinnedEce,
    "ece_grid": EceGrid,
    "label_smoothing": LabelSmoothing,
    "focal": Focal,
}
