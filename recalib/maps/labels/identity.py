"""No calibration of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Parameter
from recalib.maps.labels.base import LabelMap
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class LabelIdentity(LabelMap):
    """σ(z_k): the probabilities as they are."""

    name: ClassVar[str] = "identity"
    summary: ClassVar[str] = "no change"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits
