"""Beta calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Link
from recalib.maps.one_vs_rest import ClassCurves, log_p_and_complement
from recalib.ops.base import Array, Ops

#: Log-odds against the prediction are clipped here, since larger powers overflow.
_MAX_AGAINST = 80.0


@dataclass(frozen=True)
class Beta(ClassCurves):
    """Beta calibration, each class against the rest: q_k = σ(a_k ln p_k − b_k ln(1 − p_k) + c_k).

    p = softmax(z / T), and each row of q is divided by its sum. a, b > 0, so every curve rises;
    a = b = 1, c = 0 is temperature scaling. The curve is exact if the p_k of rows with and without
    label k are Beta distributed.

    Each class is fitted by likelihood with the penalty ½ ((a − 1)² + (b − 1)² + c² / 4), which
    weighs as much as one row and favours temperature scaling. A class without labels keeps its
    probability.

    Predictions may change. Adding a number to a row of logits changes nothing.

    Parameters: `temperature`, a scalar, in units of the logits; `low` (K,), a, which bends the
    curve near p = 0; `high` (K,), b, near p = 1; `bias` (K,), c, in nats.

    Applying it takes eight times as long as temperature scaling at K = 1000: a logarithm of each
    1 − p, which takes twice as long, and two powers.

    Source: Kull, Silva Filho & Flach 2017, eq. 3 (two classes, T = 1, no penalty; a negative a or
    b is set to 0 there and the others are refitted; here both stay above 1e-6).
    """

    name: ClassVar[str] = "beta"
    summary: ClassVar[str] = "a curve of three numbers for each class's probability"
    links: ClassVar[Mapping[str, Link]] = {
        "low": "log",
        "high": "log",
        "bias": "real",
    }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        # log q: its softmax is q divided by its sum.
        return ops.log_sigmoid(0.0 - self._against(ops, logits, parameters))

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        # The same without another logarithm.
        q = 1.0 / (ops.exp(self._against(ops, logits, parameters)) + 1.0)
        return q / ops.sum(q)

    def _against(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return the log-odds against each class (N, K), −logit q; a masked class has +inf."""
        softened = logits / parameters["temperature"]
        log_p, log_q = log_p_and_complement(ops, softened)
        bent = log_q * parameters["high"] - parameters["bias"]
        against = bent - log_p * parameters["low"]
        # No row of q is all zero: the predicted class keeps at least 1e-35.
        top = ops.argmax(softened)
        largest = ops.take_along(against, top)
        clipped = largest - ops.relu(largest - _MAX_AGAINST)
        return ops.put_along(against, top, clipped)
