"""Meta-Cal with a bound on miscoverage, the fraction of right predictions that are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recalib.core.field_types import Fraction
from recalib.maps.meta_cal import ConfidenceLevel, SelectiveMap


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
