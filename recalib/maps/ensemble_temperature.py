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
    """Ensemble temperature scaling (ETS): three predictions mixed with weights w on the simplex.

    - `mixture` = `probabilities`: p = w₁ softmax(z/T) + w₂ softmax(z) + w₃ / K. So p is at least
      w₃ / K. Where classes are masked, the uniform term is spread over the others.
    - `mixture` = `logits`: p = softmax(w₁ z/T + w₂ z + w₃/K). The last term is a shift and without
      effect, and the rest z times one slope: temperature scaling in disguise.

    Each term rises with z, so no prediction changes while w₁ + w₂ > 0; with w₃ = 1 all classes
    are equal.

    Parameters: `temperature`, a scalar, in units of the logits, and `weights` (3,). Fitted in two
    stages: the temperature as in temperature scaling by the same objective, and then, from
    w = (1, 0, 0) and with T held, the weights. No fit ends above temperature scaling.

    Applying the first takes up to three softmaxes and a pass for each weight: with two terms under
    three times temperature scaling's time, with three over four times. A weight of 0 costs nothing.

    Source: Zhang et al. 2020 for probabilities; paper 003, eq. 13, for logits. The paper does not
    constrain its weights, so that its slope may turn negative; on the simplex none can, and with T
    at its best nothing is lost.
    """

    mixture: Literal["probabilities", "logits"] = "probabilities"

    name: ClassVar[str] = "ensemble_temperature"
    summary: ClassVar[str] = "a softened, the original and a uniform prediction, mixed"
    returns: ClassVar[Literal["logits", "probabilities"]] = "probabilities"
    preserves_accuracy: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {"temperature": Parameter((), "log"), "weights": Parameter((3,), "simplex")}

    def start(self, classes: int, temperature: float) -> dict[str, NDArray[np.float64]]:
        return {"temperature": np.array(temperature), "weights": np.array([1.0, 0.0, 0.0])}

    def stages(self, classes: int) -> tuple[tuple[str, ...], ...]:
        # The temperature is found before, by the solver of temperature scaling.
        return (("weights",),)

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self.mixture == "logits":
            return ops.softmax(self._mixed_logits(ops, logits, parameters))
        return ops.weighted_sum(
            parameters["weights"],
            (
                lambda: ops.softmax(logits / parameters["temperature"]),
                lambda: ops.softmax(logits),
                lambda: self._uniform(ops, logits),
            ),
        )

    @staticmethod
    def _uniform(ops: Ops, logits: Array) -> Array:
        """Return the uniform prediction over the classes that are not masked."""
        unmasked = ops.unmasked(logits)
        return unmasked * (1.0 / ops.sum(unmasked))

    def log_probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self.mixture == "logits":
            return ops.log_softmax(self._mixed_logits(ops, logits, parameters))
        return super().log_probabilities(ops, logits, parameters)

    def _mixed_logits(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        weights = parameters["weights"]
        slope = ops.select(weights, 0) / parameters["temperature"] + ops.select(weights, 1)
        return logits * slope
