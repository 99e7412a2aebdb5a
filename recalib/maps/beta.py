"""Beta calibration: each probability by a curve of three numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.maps.base import Map, Parameter
from recalib.maps.one_vs_rest import log_pairs
from recalib.ops.base import Array, Ops

__all__ = ["Beta"]


#: Log-odds against the prediction are cut off here: the power of more would overflow.
_MOST_AGAINST = 80.0


@dataclass(frozen=True)
class Beta(Map):
    """Beta calibration, each class against the rest: q_k = σ(a_k ln p_k − b_k ln(1 − p_k) + c_k).

    p = softmax(z / T), and each row of q is divided by its sum. a, b > 0, so that every curve
    rises; a = b = 1, c = 0 is temperature scaling. It is the right curve where the p_k of rows
    with and without the label k are Beta distributed.

    Each class is fitted by likelihood, held near temperature scaling by what is worth one row:
    ½ ((a − 1)² + (b − 1)² + c² / 4). A class without labels keeps its own probability.

    Predictions may change. Adding a number to a row of logits changes nothing.

    Parameters: `temperature`, a scalar, in units of the logits; `low` (K,), a, which bends the
    curve near p = 0; `high` (K,), b, near p = 1; `bias` (K,), c, in nats.

    Applying it takes a logarithm of each 1 − p, which alone is twice temperature scaling's time,
    and two powers: eight times in all at K = 1000.

    Source: Kull, Silva Filho & Flach 2017, eq. 3 (two classes, T = 1, no penalty; a negative a or
    b is set to 0 there and the rest fitted again, here both keep above 1e-6).
    """

    name: ClassVar[str] = "beta"
    summary: ClassVar[str] = "a curve of three numbers for each class's probability"
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "temperature": Parameter((), "log"),
            "low": Parameter((classes,), "log", (0,)),
            "high": Parameter((classes,), "log", (0,)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        # The logarithm of q: its softmax is q divided by its sum.
        return ops.log_sigmoid(0.0 - self._against(ops, logits, parameters))

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        # The same without a second logarithm of each number.
        q = 1.0 / (ops.exp(self._against(ops, logits, parameters)) + 1.0)
        return q / ops.sum(q)

    def _against(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return the log-odds against each class (N, K), −logit q; a masked class has +inf."""
        softened = logits / parameters["temperature"]
        log_p, log_q = log_pairs(ops, softened)
        bent = log_q * parameters["high"] - parameters["bias"]
        against = bent - log_p * parameters["low"]
        # No row of q is all zero: the likeliest class keeps 1e-35.
        top = ops.argmax(softened)
        most = ops.take_along(against, top)
        return ops.put_along(against, top, most - ops.relu(most - _MOST_AGAINST))
