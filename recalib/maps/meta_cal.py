"""Meta-Cal: temperature scaling that rejects rows, with a bound on those it accepts or rejects.

Rows are ranked by the log-odds s of their prediction under softmax(z / R). Rows with s at or above
a threshold get softmax(z / T), the others the uniform prediction over their unmasked classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from recalib.core.field_types import Fraction, Interval
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


@dataclass(frozen=True)
class MetaAccuracy(SelectiveMap):
    """Meta-Cal under P(right | accepted) ≥ `accuracy`, with probability `sureness`.

    16 thresholds are tested, which accept 1/16, 2/16, ... of the rows. A threshold passes if a
    binomial test rejects an accuracy below the bound for its rows at the level
    (1 − `sureness`) / 16 (Bonferroni). The lowest threshold that passes is used. If none passes,
    all rows are rejected, which satisfies the bound.

    Rows below the threshold are rejected and get the uniform prediction. The others are accepted
    and get softmax(z / T), with T fitted to them. The bound holds for new rows of the same
    distribution. R is fitted to the same rows as the threshold, with a negligible effect: it is one
    number and hardly changes the order of rows. Weights count as numbers of rows.

    Rejected rows lose their prediction: a uniform row predicts its first class. The result jumps at
    the threshold.

    Parameters: `temperature`, T, and `ranking_temperature`, R, in units of the logits; `threshold`
    on the log-odds of the prediction under softmax(z / R), in nats; −1e30 or 1e30 if all or no rows
    pass.

    Source: Ma & Blaschko 2021, with coverage accuracy control; the tests are those of learn then
    test (Angelopoulos et al. 2021).
    """

    accuracy: Fraction = 0.9
    sureness: ConfidenceLevel = 0.975

    name: ClassVar[str] = "meta_accuracy"
    summary: ClassVar[str] = (
        "temperature scaling; rejects rows of low confidence for accuracy on the others"
    )


@dataclass(frozen=True)
class MetaMiscoverage(SelectiveMap):
    """Meta-Cal under P(rejected | right) ≤ `miscoverage`, with probability `sureness`.

    The threshold is just below the k-th smallest score of the n right rows. The fraction of new
    right rows below it is at most Beta(k, n − k + 1) distributed. k is the largest for which
    P(Beta ≤ `miscoverage`) ≥ `sureness`; if there is none, no row is rejected.

    Rows below the threshold are rejected and get the uniform prediction. The others are accepted
    and get softmax(z / T), with T fitted to them. The bound holds for new rows of the same
    distribution. R is fitted to the same rows as the threshold, with a negligible effect: it is one
    number and hardly changes the order of rows. Weights count as numbers of rows.

    Rejected rows lose their prediction: a uniform row predicts its first class. The result jumps at
    the threshold.

    Parameters: `temperature`, T, and `ranking_temperature`, R, in units of the logits; `threshold`
    on the log-odds of the prediction under softmax(z / R), in nats; −1e30 or 1e30 if all or no rows
    pass.

    Source: Ma & Blaschko 2021, with miscoverage control; the finite-sample quantile is that of
    tolerance limits (Wilks 1941).
    """

    miscoverage: Fraction = 0.05
    sureness: ConfidenceLevel = 0.975

    name: ClassVar[str] = "meta_miscoverage"
    summary: ClassVar[str] = (
        "temperature scaling; rejects rows of low confidence, few of them right"
    )
