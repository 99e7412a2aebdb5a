"""Platt scaling of each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Parameter
from recalib.maps.labels.base import LabelMap
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class LabelPlatt(LabelMap):
    """Platt scaling of each label: σ(a_k z_k + b_k), a > 0.

    Each label is fitted by likelihood with the penalty ½ ((a − 1)² + b² / 4), which weighs as much
    as one row and favours no change; with it separable rows have a solution.

    Parameters: `slope` (K,), a; `bias` (K,), b, in nats.

    Source: Platt 1999 (there without this penalty, and with smoothed targets).
    """

    name: ClassVar[str] = "platt"
    summary: ClassVar[str] = "a slope and an intercept for each label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "slope": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits * parameters["slope"] + parameters["bias"]
