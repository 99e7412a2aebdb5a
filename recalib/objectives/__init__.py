"""What a fit minimises: a new objective is one file and one line here."""

from recalib.objectives.base import Objective
from recalib.objectives.nll import NegativeLogLikelihood

__all__ = ["OBJECTIVES", "Objective"]

OBJECTIVES: dict[str, type[Objective]] = {
    "nll": NegativeLogLikelihood,
}
