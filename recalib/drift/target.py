"""The target of monitoring: which event the monitored probability of a prediction is about.

- `top_label`: the predicted class is the label. The probability is the confidence.
- `positive_class`: the label is class 1, of two classes. The probability is P(y = 1).
- `set_coverage`: the label is in the prediction set. The probability is the promised coverage.
- `accepted`: an accepted row is right. The probability is 1 − the promised risk.

The last two are promises: least probabilities, which only a lower frequency breaks. Sets that
always have the most probable class hold the label more often than promised.

A shifted base rate is an error of one sign in P(y = 1). In the confidence it has one sign where
class 0 is predicted and the other where class 1 is, and both share bins.

Legend: N rows, K classes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Numbers

RowTarget = Literal["top_label", "positive_class"]
Target = Literal[RowTarget, "set_coverage", "accepted"]
#: The targets that are promises, by the name of their stream among the segments of a status.
SETS, ACCEPTED = "(sets)", "(accepted)"
PROMISES: dict[str, Target] = {SETS: "set_coverage", ACCEPTED: "accepted"}


class TargetNames(NamedTuple):
    """The words for outcomes, probabilities and the error of a target."""

    frequency: str
    probability: str
    values: str
    error: str


TARGET_NAMES: dict[Target, TargetNames] = {
    "top_label": TargetNames("accuracy", "confidence", "confidences", "ECE"),
    "positive_class": TargetNames(
        "the frequency of class 1", "P(y = 1)", "values of P(y = 1)", "ECE of P(y = 1)"
    ),
    "set_coverage": TargetNames(
        "the coverage of prediction sets",
        "the promised coverage",
        "promised coverages",
        "shortfall of the coverage",
    ),
    "accepted": TargetNames(
        "the accuracy of accepted rows",
        "the promised accuracy",
        "promised accuracies",
        "shortfall of the accuracy of accepted rows",
    ),
}


def target_of(classes: int) -> RowTarget:
    """Return the target of predictions of this number of classes."""
    return "positive_class" if classes == 2 else "top_label"


def monitored_probabilities(probabilities: Floats, target: Target) -> Numbers:
    """Return the monitored probability of each row of `probabilities` (N, K), in [0, 1]."""
    columns = probabilities[:, 1] if target == "positive_class" else probabilities.max(axis=1)
    return np.minimum(columns.astype(np.float64), 1.0)  # after rounding


def pairs_of_rows(probabilities: Floats, labels: NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Return monitored probabilities and outcomes (N,) of rows (N, K) with labels (N,)."""
    target = target_of(probabilities.shape[1])
    event = 1 if target == "positive_class" else probabilities.argmax(axis=1)
    return monitored_probabilities(probabilities, target), (labels == event).astype(np.float64)


def values_of_predicted_class(
    values: NDArray[Any], predicted: NDArray[Any], target: Target
) -> Numbers:
    """Return monitored probabilities or outcomes (N,) from those of the predicted class.

    Of the positive class, these are the complements where class 0 is predicted. They are exact for
    outcomes, and to 10⁻⁷ for confidences of single precision, as in prediction ids.

    Parameters
    ----------
    values: confidences, or whether predictions were right; NaN without a label; (N,).
    predicted: the index of the predicted class, (N,).
    """
    wide = np.asarray(values, np.float64)
    return wide if target == "top_label" else np.where(predicted == 1, wide, 1 - wide)
