"""Meta-Cal with a bound on the accuracy of accepted rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recalib.core.field_types import Fraction
from recalib.maps.meta_cal import ConfidenceLevel, SelectiveMap


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
