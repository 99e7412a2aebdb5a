"""The contract of a map of independent labels.

A label map turns the log-odds z (N, K) of K labels into calibrated log-odds. Column k depends on
column k alone, by a rising function with its own fitted numbers. The probability of label k is
σ(score_k); a row may have any number of labels, so its probabilities have no fixed sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.maps.base import Map
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class LabelMap(Map):
    """A family of functions from log-odds (N, K) to calibrated log-odds (N, K)."""

    #: The set of labels with a probability above 1/2 may change.
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False
    #: Log-odds of labels are finite, so there are no masks.
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return the probability of each label (N, K), in [0, 1]."""
        return ops.exp(self.log_probabilities(ops, logits, parameters))

    def log_probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return the logarithm of the probability of each label (N, K)."""
        return ops.log_sigmoid(self.transform(ops, logits, parameters))
