"""Isotonic calibration of each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from recalib.maps.base import Parameter
from recalib.maps.labels.base import LabelMap
from recalib.maps.lookup_table import interpolate, next_power_of_two
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class LabelIsotonic(LabelMap):
    """Isotonic calibration of each label: a rising, piecewise linear curve of its log-odds.

    Blocks, their smoothing and the limit of the slope are those of `recalib.maps.isotonic.Isotonic`
    with `one_vs_rest`. A curve has at most `knots` blocks.

    Parameters, P the next power of two from `knots`: `knots` and `values` (K, P + 1), log-odds
    before and after.

    Source: Zadrozny & Elkan 2002. Smoothing and interpolation are added here.
    """

    knots: Annotated[int, msgspec.Meta(ge=2, le=256)] = 64

    name: ClassVar[str] = "isotonic"
    summary: ClassVar[str] = "a rising curve for each label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        shape = (classes, next_power_of_two(self.knots) + 1)
        return {
            "knots": Parameter(shape, "rising", (0,)),
            "values": Parameter(shape, "real", (0,)),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        cells = next_power_of_two(self.knots)
        return interpolate(ops, logits, parameters["knots"], parameters["values"], cells)
