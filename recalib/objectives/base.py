"""What a fit minimises.

An objective is a frozen value whose fields are its options. It reads calibrated log-probabilities
and labels, and returns one number, lower being better. Like a map it is written in the operations
of `recalib.ops`, so that importing it costs nothing and NumPy can check what torch computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from recalib.ops.base import Array, FittingOps

__all__ = ["Objective"]


@dataclass(frozen=True)
class Objective(ABC):
    """A function of predictions and labels that a fit makes small."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def loss(self, ops: FittingOps, log_probabilities: Array, labels: Array) -> Array:
        """Return the objective over log p (N, K) and integer labels (N,), as a scalar."""
