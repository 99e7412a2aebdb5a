"""Area under the risk-coverage curve, and how much of it a better order of rows would save."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.special

from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions
from recalib.metrics.ranking import ranked

__all__ = ["ExcessRiskCoverageArea", "RiskCoverageArea"]


class RiskCoverageArea(Metric):
    """Area under the risk-coverage curve, ∫₀¹ risk(c) dc = −E[ln(1 − G) · error]; range [0, 1].

    risk(c) is the share of errors among the surest rows that make up a share c of all, and 1 − G
    the share of rows that are surer. That is the population's form, here of the rows as they are:
    each is spread evenly over its 1/N of coverage, so that copies of all rows change nothing. The
    sum over N coverages that is often reported differs by less than 1/N.

    Where confidences tie, each row counts with the accuracy of all rows of that confidence: the
    expectation over the orders that they could have, so that the order in a file does not matter.
    It is small where accuracy is high, however good the order: see `e_aurc`. The bias is
    of order 1/N. No interval in this version.

    Source: Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural
    classifiers, ICLR 2019; paper 002, definition 3.3.
    """

    name: ClassVar[str] = "aurc"
    summary: ClassVar[str] = "area under the risk-coverage curve: errors among the surest rows"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return Estimate(_area(predictions))


class ExcessRiskCoverageArea(Metric):
    """Excess AURC: `aurc` less that of the best order, r + (1 − r) ln(1 − r); range [0, 1].

    r is the share of errors: the best order has every error among the least sure rows. 0 is such
    an order, and what is known whatever the order when all rows are right or all are wrong. Ties,
    bias and interval as in `aurc`.

    Source: Geifman, Uziel and El-Yaniv, ICLR 2019, section 4.
    """

    name: ClassVar[str] = "e_aurc"
    summary: ClassVar[str] = "aurc above that of the best order of the same errors"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        share = 1 - float(np.mean(predictions.correct))
        best = share + float(scipy.special.xlog1py(1 - share, -share))
        return Estimate(max(_area(predictions) - best, 0.0))


def _area(predictions: Predictions) -> float:
    """Return Σ error_i ∫ −ln u du over each row's part of coverage, (i − 1)/N to i/N."""
    errors = 1 - ranked(predictions)[1][::-1]
    u = np.arange(len(errors) + 1) / len(errors)
    antiderivative = u - scipy.special.xlogy(u, u)
    return float(np.diff(antiderivative) @ errors)
