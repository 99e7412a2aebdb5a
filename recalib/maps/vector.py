"""Vector scaling: a positive factor and an intercept for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.maps.base import Map, Parameter
from recalib.maps.ridge import Ridge, Strength, ridge_penalty
from recalib.ops.base import Array, Ops

__all__ = ["Vector"]


@dataclass(frozen=True)
class Vector(Map):
    """Vector scaling: p = softmax(w ∘ z + b), w_k > 0.

    Predictions may change. The result depends on where the classifier puts the zero of its
    logits: adding a number to a row changes it.

    The penalty `intercept` / N · Σ b_k² does two things that likelihood cannot. It picks one b
    among all that differ by a constant, the one of mean 0; and it ends the b_k of a class that
    never occurs at about −log(N / `intercept`) instead of −∞. At its default, a hundredth of what
    one row weighs, it changes no other result in its third digit.

    Parameters: `scale` (K,), per unit of the logits, and `bias` (K,), in nats.

    Source: Guo et al. 2017, section 4.2, where w has any sign and there is no penalty. A negative
    w_k says that a class is the less likely the higher its logit, which few rows can show and
    noise in few rows often does; and it would turn a masked class into a certain one.
    """

    intercept: Strength = 0.01

    name: ClassVar[str] = "vector"
    summary: ClassVar[str] = "a positive factor and an intercept for each class"
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "scale": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> dict[str, NDArray[np.float64]]:
        return {"scale": np.full(classes, 1 / temperature), "bias": np.zeros(classes)}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits * parameters["scale"] + parameters["bias"]

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: int) -> Array:
        classes = len(parameters["bias"])
        return ridge_penalty(self.ridges(classes, rows), ops, parameters)

    def ridges(self, classes: int, rows: int) -> Mapping[str, Ridge]:
        return {"bias": Ridge(np.full(classes, self.intercept / rows), np.zeros(classes))}
