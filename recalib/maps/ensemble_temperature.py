"""Ensemble temperature scaling: a softened, an untouched and a uniform prediction, mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.maps.base import Map, Parameter
from recalib.ops.base import Array, Ops

__all__ = ["EnsembleTemperature"]


@dataclass(frozen=True)
class EnsembleTemperature(Map):
    """Ensemble temperature scaling (ETS): p = w₁ softmax(z/T) + w₂ softmax(z) + w₃ / K.

    The weights are non-negative and sum to one, so p is a probability of at least w₃ / K
    wherever w₃ > 0; each term is increasing in z, so no prediction changes. Where classes are
    masked, the uniform term is spread over the others.

    Parameters: `temperature`, a scalar, in units of the logits, and `weights` (3,). Fitted in two
    stages, the temperature as in temperature scaling and then the weights with T held.

    Source: Zhang et al. 2020. Paper 003 writes the same three terms but mixes logits (its eq. 13):
    w₁ z/T + w₂ z + w₃/K is z times one number, up to a shift, and hence temperature scaling in
    disguise; its digits can be had by `temperature`.
    """

    name: ClassVar[str] = "ensemble_temperature"
    summary: ClassVar[str] = "a softened, the original and a uniform prediction, mixed"
    returns: ClassVar[Literal["logits", "probabilities"]] = "probabilities"
    preserves_accuracy: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {"temperature": Parameter((), "log"), "weights": Parameter((3,), "simplex")}

    def start(self, classes: int, temperature: float) -> dict[str, NDArray[np.float64]]:
        return {"temperature": np.array(temperature), "weights": np.full(3, 1 / 3)}

    def stages(self, classes: int) -> tuple[tuple[str, ...], ...]:
        return (("weights",),)

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        weights = parameters["weights"]
        softened = ops.softmax(logits / parameters["temperature"])
        untouched = ops.softmax(logits)
        # Uniform over the classes that are not masked: −inf stays −inf, while any other logit
        # times 1e-30 has an exponential of exactly 1.
        uniform = ops.softmax(logits * 1e-30)
        return (
            softened * ops.select(weights, 0)
            + untouched * ops.select(weights, 1)
            + uniform * ops.select(weights, 2)
        )
