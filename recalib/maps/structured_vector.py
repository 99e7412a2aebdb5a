"""Structured vector scaling: temperature scaling with regularised corrections by class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.maps.base import Parameter, Parameters
from recalib.maps.ridge import Ridge, Strength, StructuredMap
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class StructuredVector(StructuredMap):
    """Structured vector scaling: p = softmax(w ∘ log softmax(z / T) + b), w_k > 0.

    T is the best single temperature by NLL and stays fixed. w and b start at w = 1, b = 0, which
    is temperature scaling, with the penalty g K / N (`diagonal` Σ (w_k − 1)² +
    `intercept` Σ b_k²). Times N, this is the negative logarithm of a normal prior of variance
    1 / (2 g K) for each number. g is `strength`; by default it is chosen by data, see
    `recalib.fitting.strength`, and the card has it in `fit.settled`. With `rows_per_parameter` = r
    it is 1 + r P / N for P = 2 K numbers.

    Predictions may change; adding a number to a row of logits changes nothing.

    Parameters: `temperature`, a scalar, in units of the logits; `scale` (K,), without unit;
    `bias` (K,), in nats.

    Source: the hierarchy and the ridges follow Berta et al. 2026 (structured scaling, ridge,
    ρ = τ = 1), with w positive here, and g instead of 1.
    """

    diagonal: Strength = 1.0
    intercept: Strength = 1.0

    name: ClassVar[str] = "structured_vector"
    summary: ClassVar[str] = "a temperature and a regularised correction for each class"
    preserves_order: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "temperature": Parameter((), "log"),
            "scale": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> Parameters:
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

    def ridges(self, classes: int, rows: float) -> Mapping[str, Ridge]:
        share = self.class_share(classes, rows, numbers=2 * classes)
        return {
            "scale": Ridge(np.full(classes, share * self.diagonal), np.ones(classes)),
            "bias": Ridge(np.full(classes, share * self.intercept), np.zeros(classes)),
        }
