"""A temperature for each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Parameter
from recalib.maps.labels.base import LabelMap
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class LabelTemperature(LabelMap):
    """Temperature scaling of each label: σ(z_k / T_k), fitted by likelihood.

    A probability of 1/2 stays 1/2, so the set of labels above 1/2 never changes; a label that is
    too frequent or too rare on average needs `platt`.

    Parameters: `temperature` (K,), in units of the logits.

    Source: Guo et al. 2017, for two classes, label by label.
    """

    name: ClassVar[str] = "temperature"
    summary: ClassVar[str] = "a temperature for each label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {"temperature": Parameter((classes,), "log", (0,))}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits / parameters["temperature"]
