"""Meta-Cal's two-way answer: what ranks high is calibrated, the rest is said to be unknown.

Rows are ranked by the log-odds s of their prediction under softmax(z / R). Those with s at or
above a threshold get softmax(z / T), the others the uniform prediction over their unmasked classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from recalib.maps.base import Parameter
from recalib.maps.top_label import split
from recalib.ops.base import Array, Ops

__all__ = ["Share", "Sureness", "answer", "ranking_parameters"]

#: A share of rows, as an option, and the probability with which a stated bound shall hold.
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Sureness = Annotated[float, msgspec.Meta(ge=0.5, lt=1)]

#: Logits times this are equal to the last bit of their exponentials, while −inf stays −inf.
_UNIFORM = 1e-30


def ranking_parameters() -> Mapping[str, Parameter]:
    """Return R and T, in units of the logits, and the threshold on s, in nats."""
    return {
        "temperature": Parameter((), "log"),
        "ranking_temperature": Parameter((), "log"),
        "threshold": Parameter((), "real"),
    }


def answer(ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
    """Return the logits (N, K) of the answer to each row."""
    odds = split(ops, logits / parameters["ranking_temperature"]).odds
    known = ops.greater_equal(odds, parameters["threshold"])
    return logits * (ops.where(known, 1.0, _UNIFORM) / parameters["temperature"])
