"""No calibration: the baseline of every other map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Map, Parameter, Parameters
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class Identity(Map):
    """The classifier's own softmax: p = softmax(z).

    Range: the open simplex. It has no parameters and changes no prediction.
    """

    name: ClassVar[str] = "identity"
    summary: ClassVar[str] = "the classifier's own softmax"
    preserves_accuracy: ClassVar[bool] = True
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {}

    def start(self, classes: int, temperature: float) -> Parameters:
        return {}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits
