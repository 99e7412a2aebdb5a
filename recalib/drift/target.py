"""The target of monitoring: which event the monitored probability of a prediction is about.

- `top_label`: the predicted class is the label. The probability is the confidence.
- `positive_class`: the label is class 1, of two classes. The probability is P(y = 1).

A shifted base rate is an error of one sign in P(y = 1). In the confidence it has one sign where
class 0 is predicted and the other where class 1 is, and both share bins.

Legend: N rows, K classes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats

__all__ = [
    "TARGET_NAMES",
    "Target",
    "TargetNames",
    "monitored_probabilities",
    "of_positive_class",
    "target_of",
]

Target = Literal["top_label", "positive_class"]


class TargetNames(NamedTuple):
    """The words for outcomes and probabilities of a target."""

    frequency: str
    probability: str
    values: str


TARGET_NAMES: dict[Target, TargetNames] = {
    "top_label": TargetNames("accuracy", "confidence", "confidences"),
    "positive_class": TargetNames("the frequency of class 1", "P(y = 1)", "values of P(y = 1)"),
}


def target_of(classes: int) -> Target:
    """Return the target of predictions of this number of classes."""
    return "positive_class" if classes == 2 else "top_label"


def monitored_probabilities(probabilities: Floats, target: Target) -> NDArray[np.float64]:
    """Return the monitored probability of each row of `probabilities` (N, K), in [0, 1]."""
    columns = probabilities[:, 1] if target == "positive_class" else probabilities.max(axis=1)
    clipped: NDArray[np.float64] = np.minimum(columns.astype(np.float64), 1.0)  # after rounding
    return clipped


def of_positive_class(values: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities, or outcomes, of class 1 from those of the predicted class, (N,).

    The complement is exact for outcomes, and to 10⁻⁷ for the confidences of prediction ids, which
    have single precision.

    Parameters
    ----------
    values: (N,), in [0, 1] or NaN: confidence, or whether the prediction was right.
    predicted: (N,), 0 or 1.
    """
    wide = np.asarray(values, np.float64)
    return np.where(predicted == 1, wide, 1 - wide)
