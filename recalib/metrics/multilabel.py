"""Metrics of independent labels: of each label, and their mean over labels.

Legend: N rows, K labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats
from recalib.metrics import METRICS, Estimate, Metric, Predictions
from recalib.metrics.evaluate import measure_all
from recalib.options import unknown_name

__all__ = ["LABEL_METRICS", "LabelEstimates", "evaluate_labels"]

#: The metrics of a label. Calibration errors are those of the label's probability, whether it is
#: large or small: the gap between p and the frequency of the label.
LABEL_METRICS = (
    "accuracy", "nll", "brier", "ece", "ece_equal_mass", "ece_l2", "ece_debiased", "ks_error",
    "smooth_ece", "mce",
)  # fmt: skip
_DEFAULT = ("accuracy", "nll", "brier", "ece")
_TOP_LABEL = ("accuracy",)


@dataclass(frozen=True)
class LabelEstimates:
    """Metrics by name: the means over labels, without intervals, and those of each label."""

    average: dict[str, Estimate]
    labels: list[dict[str, Estimate]]


def evaluate_labels(
    labels: NDArray[np.bool_],
    log_odds: Floats,
    probabilities: Floats,
    *,
    sample_weight: ArrayLike | None = None,
    metrics: Iterable[str] | None = None,
    bins: int = 15,
    level: float | None = None,
) -> LabelEstimates:
    """Return metrics of each label and their means.

    `accuracy` is the share of rows where p > 1/2 agrees with the label; `brier` is 2(p − y)², as
    for two classes.

    Parameters
    ----------
    labels: (N, K), checked.
    log_odds, probabilities: (N, K), checked, of the same predictions.
    sample_weight: (N,), as in `recalib.metrics.evaluate.evaluate`.
    metrics: names in `LABEL_METRICS`; by default accuracy, proper scores and ECE.
    bins: the number of bins of binned metrics.
    level: confidence of intervals of each label; none by default.

    Raises
    ------
    InputError: an unknown metric.
    """
    names = list(_DEFAULT if metrics is None else metrics)
    for name in names:
        if name not in LABEL_METRICS:
            raise unknown_name("metrics", name, LABEL_METRICS)
    chosen = {name: METRICS[name](bins) for name in names}
    each = [
        _measure(chosen, labels[:, k], log_odds[:, k], probabilities[:, k], sample_weight, level)
        for k in range(labels.shape[1])
    ]
    average = {
        name: Estimate(float(np.mean([estimates[name].value for estimates in each])))
        for name in names
    }
    return LabelEstimates(average, each)


def _measure(
    metrics: dict[str, Metric],
    labels: NDArray[np.bool_],
    log_odds: Floats,
    probabilities: Floats,
    sample_weight: ArrayLike | None,
    level: float | None,
) -> dict[str, Estimate]:
    """Return the metrics of one label; all arrays are (N,)."""
    y = labels.astype(np.int64)
    both = np.stack([1 - probabilities, probabilities], axis=1)
    logs = scipy.special.log_expit(np.where(labels, 1.0, -1.0) * log_odds.astype(np.float64))
    # The column of the label as if it were always predicted: its probability is the confidence.
    column = Predictions(both, y, np.ones_like(y), logs, both)
    top = Predictions(both, y, (log_odds > 0).astype(np.int64), logs, both)
    return {
        name: measure_all(
            {name: metric}, top if name in _TOP_LABEL else column, sample_weight, level, named=True
        )[name]
        for name, metric in metrics.items()
    }
