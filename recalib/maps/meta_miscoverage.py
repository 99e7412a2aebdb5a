"""Meta-Cal with a bound on miscoverage: few of the right predictions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.maps.base import Map, Parameter
from recalib.maps.meta_cal import Share, Sureness, answer, ranking_parameters
from recalib.ops.base import Array, Ops

__all__ = ["MetaMiscoverage"]


@dataclass(frozen=True)
class MetaMiscoverage(Map):
    """Meta-Cal under P(refused | right) ≤ `miscoverage`, with probability `sureness`.

    The threshold lies just under the k-th smallest score of the n rows predicted rightly. The
    share of right rows to come under it is at most Beta(k, n − k + 1) distributed, and k is the
    largest for which P(Beta ≤ `miscoverage`) ≥ `sureness`. Without such a k, no row is refused.

    Rows under the threshold get the uniform prediction, the others softmax(z / T), T fitted to
    those. Rows must be drawn as those to come; R is fitted to the same rows as the threshold,
    which costs nothing to speak of: it is one number, and moves the order of rows a little.
    Weights count as numbers of rows.

    Predictions of refused rows are lost: a uniform row predicts its first class. The result jumps
    at the threshold.

    Parameters: `temperature`, T, and `ranking_temperature`, R, in units of the logits; `threshold`
    on the log-odds of the prediction under softmax(z / R), in nats; ±1e30 where all or no rows
    pass.

    Source: Ma & Blaschko 2021, with miscoverage control; the finite-sample quantile is that of
    tolerance limits (Wilks 1941).
    """

    miscoverage: Share = 0.05
    sureness: Sureness = 0.975

    name: ClassVar[str] = "meta_miscoverage"
    summary: ClassVar[str] = (
        "temperature scaling; the least sure rows are uniform, few right ones among them"
    )
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    continuous: ClassVar[bool] = False
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return ranking_parameters()

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return answer(ops, logits, parameters)
