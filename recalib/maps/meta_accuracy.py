"""Meta-Cal with a bound on accuracy: those kept are right as often as stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.maps.base import Map, Parameter
from recalib.maps.meta_cal import Share, Sureness, answer, ranking_parameters
from recalib.ops.base import Array, Ops

__all__ = ["MetaAccuracy"]


@dataclass(frozen=True)
class MetaAccuracy(Map):
    """Meta-Cal under P(right | kept) ≥ `accuracy`, with probability `sureness`.

    16 thresholds are tried, which keep 1/16, 2/16, ... of the rows. One passes where so few errors
    among the rows it keeps have a probability of (1 − `sureness`) / 16 at most if their accuracy
    were under the bound (binomial test, Bonferroni), and the lowest that passes is taken. Without
    one, all rows are refused: an empty promise is kept, a false one is not made.

    Rows under the threshold get the uniform prediction, the others softmax(z / T), T fitted to
    those. Rows must be drawn as those to come; R is fitted to the same rows as the threshold,
    which costs nothing to speak of: it is one number, and moves the order of rows a little.
    Weights count as numbers of rows.

    Predictions of refused rows are lost: a uniform row predicts its first class. The result jumps
    at the threshold.

    Parameters: `temperature`, T, and `ranking_temperature`, R, in units of the logits; `threshold`
    on the log-odds of the prediction under softmax(z / R), in nats; ±1e30 where all or no rows
    pass.

    Source: Ma & Blaschko 2021, with coverage accuracy control; the tests are those of learn then
    test (Angelopoulos et al. 2021).
    """

    accuracy: Share = 0.9
    sureness: Sureness = 0.975

    name: ClassVar[str] = "meta_accuracy"
    summary: ClassVar[str] = (
        "temperature scaling; the least sure rows are uniform, so that the others are right"
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
