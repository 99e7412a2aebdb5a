"""Temperature scaling: one number for all classes and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.maps.base import Map, Parameter, Parameters
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class Temperature(Map):
    """Temperature scaling: p = softmax(z / T), T > 0.

    T > 1 softens an overconfident classifier, T < 1 sharpens an underconfident one. The limit
    T → ∞ is uniform, and T → 0 puts all probability on the largest logit. No prediction changes.

    Parameters: `temperature`, a scalar, in units of the logits.

    Source: Guo et al. 2017; paper 003, eq. 12.
    """

    name: ClassVar[str] = "temperature"
    summary: ClassVar[str] = "one temperature for all classes"
    preserves_accuracy: ClassVar[bool] = True
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {"temperature": Parameter((), "log")}

    def start(self, classes: int, temperature: float) -> Parameters:
        return {"temperature": np.array(temperature)}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits / parameters["temperature"]
