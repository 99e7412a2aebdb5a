"""Beta calibration of each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Parameter
from recalib.maps.labels.base import LabelMap
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class LabelBeta(LabelMap):
    """Beta calibration of each label: σ(a_k ln p_k − b_k ln(1 − p_k) + c_k), p = σ(z), a, b > 0.

    a = b is Platt scaling. The penalty of the fit is that of `recalib.maps.beta.Beta`, the curve
    for several classes.

    Parameters: `low` (K,), a, which bends the curve near p = 0; `high` (K,), b, near p = 1;
    `bias` (K,), c, in nats.

    Source: Kull, Silva Filho & Flach 2017, eq. 3.
    """

    name: ClassVar[str] = "beta"
    summary: ClassVar[str] = "a curve of three numbers for each label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "low": Parameter((classes,), "log", (0,)),
            "high": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        log_p, log_q = ops.log_sigmoid(logits), ops.log_sigmoid(0.0 - logits)
        return log_p * parameters["low"] - log_q * parameters["high"] + parameters["bias"]
