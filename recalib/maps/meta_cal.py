"""The formula that the Meta-Cal maps share.

Rows are ranked by the log-odds s of their prediction under softmax(z / R). Rows with s at or above
a threshold get softmax(z / T), the others the uniform prediction over their unmasked classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from recalib.core.field_types import Interval
from recalib.maps.base import Map, Parameter
from recalib.maps.top_label import split_top_label
from recalib.ops.base import Array, Ops

#: The probability that a bound holds.
ConfidenceLevel = Annotated[float, Interval(ge=0.5, lt=1)]

#: Finite logits times this have equal exponentials, while −inf stays −inf.
_UNIFORM = 1e-30


class SelectiveMap(Map):
    """A map that rejects the rows below a threshold."""

    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    continuous: ClassVar[bool] = False
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        """Return R and T, in units of the logits, and the threshold on s, in nats."""
        return {
            "temperature": Parameter((), "log"),
            "ranking_temperature": Parameter((), "log"),
            "threshold": Parameter((), "real"),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return logits (N, K): scaled by T for accepted rows, equal for rejected rows."""
        odds = split_top_label(ops, logits / parameters["ranking_temperature"]).odds
        accepted = ops.greater_equal(odds, parameters["threshold"])
        return logits * (ops.where(accepted, 1.0, _UNIFORM) / parameters["temperature"])
