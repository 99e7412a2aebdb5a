"""Structured vector scaling: temperature scaling with regularised corrections by class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.maps.base import Map, Parameter
from recalib.maps.ridge import Ridge, Strength, ridge_penalty
from recalib.ops.base import Array, Ops

__all__ = ["StructuredVector"]


@dataclass(frozen=True)
class StructuredVector(Map):
    """Structured vector scaling: p = softmax(w ∘ log softmax(z / T) + b), w_k > 0.

    T is the best single temperature by NLL and stays fixed. w and b start at w = 1, b = 0, which
    is temperature scaling, with the penalty c K / N (`diagonal` Σ (w_k − 1)² +
    `intercept` Σ b_k²). Times N, this is the negative logarithm of a normal prior of variance
    1 / (2 c K) for each number. The prior dominates for few rows and vanishes for many.
    c = 1 + r P / N, with P = 2 K numbers and r = `rows_per_parameter`, is about 1 for ten or more
    rows per number and larger for fewer. With r = 0, the test NLL on 20 to 200 rows of a real
    validation set was up to 2% above temperature scaling's; with r = 10, under 1%.

    Predictions may change; adding a number to a row of logits changes nothing.

    Parameters: `temperature`, a scalar, in units of the logits; `scale` (K,), without unit;
    `bias` (K,), in nats.

    Source: the hierarchy and the ridges follow Berta et al. 2026 (structured scaling, ridge,
    ρ = τ = 1), with w positive here, and c added.
    """

    diagonal: Strength = 1.0
    intercept: Strength = 1.0
    rows_per_parameter: Strength = 10.0

    name: ClassVar[str] = "structured_vector"
    summary: ClassVar[str] = "a temperature and a regularised correction for each class"
    preserves_accuracy: ClassVar[bool] = False
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "temperature": Parameter((), "log"),
            "scale": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> dict[str, NDArray[np.float64]]:
        return {
            "temperature": np.array(temperature),
            "scale": np.ones(classes),
            "bias": np.zeros(classes),
        }

    def stages(self, classes: int) -> tuple[tuple[str, ...], ...]:
        return (("scale", "bias"),)

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        softened = ops.log_softmax(logits / parameters["temperature"])
        return softened * parameters["scale"] + parameters["bias"]

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: float) -> Array:
        classes = len(parameters["bias"])
        return ridge_penalty(self.ridges(classes, rows), ops, parameters)

    def ridges(self, classes: int, rows: float) -> Mapping[str, Ridge]:
        parameters = 2 * classes
        share = classes / rows * (1 + self.rows_per_parameter * parameters / rows)
        return {
            "scale": Ridge(np.full(classes, share * self.diagonal), np.ones(classes)),
            "bias": Ridge(np.full(classes, share * self.intercept), np.zeros(classes)),
        }
