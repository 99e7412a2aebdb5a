"""Class-based temperature scaling: one temperature for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.maps.base import Map, Parameter, Parameters
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class ClassTemperature(Map):
    """Class-based temperature scaling (CTS): p = softmax(z_1 / T_1, ..., z_K / T_K), T_k > 0.

    Predictions may change. Adding a number to a row of logits changes the result. For K = 2, a fit
    has T_0 = T_1, which is temperature scaling.

    Parameters: `temperature` (K,), in units of the logits.

    Source: Frenkel & Goldberger 2021, in the form of paper 003, eq. 15 (all temperatures are
    fitted jointly by the objective; the original searches them one by one on ECE).
    """

    name: ClassVar[str] = "class_temperature"
    summary: ClassVar[str] = "one temperature for each class; may change predictions"
    preserves_accuracy: ClassVar[bool] = False
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {"temperature": Parameter((classes,), "log", (0,))}

    def start(self, classes: int, temperature: float) -> Parameters:
        return {"temperature": np.full(classes, temperature)}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits / parameters["temperature"]

    def tie_classes(self, parameters: Parameters) -> Parameters:
        slopes = 1 / parameters["temperature"]
        return {"temperature": np.full(2, 1 / slopes.mean())}
