"""Vector scaling: a positive factor and an intercept for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.maps.base import Parameter, Parameters
from recalib.maps.ridge import Ridge, RidgeMap, Strength
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class Vector(RidgeMap):
    """Vector scaling: p = softmax(w ∘ z + b), w_k > 0.

    Predictions may change. Adding a number to a row of logits changes the result. For K = 2, a fit
    has w_0 = w_1, which is Platt scaling of the log-odds: P(y = 1) = σ(w (z_1 − z_0) + b_1 − b_0).

    The penalty `intercept` / N · Σ b_k² makes the optimum unique: b has mean 0, while the
    likelihood does not change if a constant is added to b. It also keeps b_k of a class without
    labels at about −log(N / `intercept`) instead of −∞. At its default, 0.01 rows, it does not
    change the first three digits of other results.

    Parameters: `scale` (K,), per unit of the logits, and `bias` (K,), in nats.

    Source: Guo et al. 2017, section 4.2, where w has any sign and there is no penalty. A negative
    w_k would make a class less likely as its logit rises, which is usually noise of few rows, and
    would make a masked class certain.
    """

    intercept: Strength = 0.01

    name: ClassVar[str] = "vector"
    summary: ClassVar[str] = "a positive factor and an intercept for each class"
    preserves_accuracy: ClassVar[bool] = False
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "scale": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> Parameters:
        return {"scale": np.full(classes, 1 / temperature), "bias": np.zeros(classes)}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits * parameters["scale"] + parameters["bias"]

    def tie_classes(self, parameters: Parameters) -> Parameters:
        return {**parameters, "scale": np.full(2, parameters["scale"].mean())}

    def ridges(self, classes: int, rows: float) -> Mapping[str, Ridge]:
        return {"bias": Ridge(np.full(classes, self.intercept / rows), np.zeros(classes))}
