"""Metrics of independent labels: of each label, and their mean over labels.

Legend: N rows, K labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Floats, WeightKind, check_weights, repeated_rows
from recalib.core.inputs import one_of
from recalib.core.label_arrays import label_log_odds
from recalib.core.options import check_choice, check_names
from recalib.files import Input
from recalib.metrics import METRICS, Estimate, Predictions
from recalib.metrics.evaluate import measure_all
from recalib.metrics.mean_metrics import fraction_estimate, mean_estimate
from recalib.stats.bin_indices import bin_indices
from recalib.stats.groups import group_sums
from recalib.stats.sums import Means

#: The metrics of a label. Calibration errors are those of the label's probability, whether it is
#: large or small: the gap between p and the frequency of the label.
LABEL_METRICS = (
    "accuracy", "nll", "brier", "ece", "ece_equal_mass", "ece_l2", "ece_debiased", "ks_error",
    "smooth_ece", "mce",
)  # fmt: skip
_ROW_MEANS = ("accuracy", "nll", "brier")
_DEFAULT = (*_ROW_MEANS, "ece")
_TOP_LABEL = ("accuracy",)


@dataclass(frozen=True, eq=False)
class LabelPredictions:
    """Checked predictions of independent labels with their true values, all (N, K)."""

    labels: NDArray[np.bool_]
    log_odds: Floats
    probabilities: Floats

    @classmethod
    def from_scores(cls, scores: Floats, labels: NDArray[np.bool_], *, input: Input) -> Self:
        """Return the predictions of checked log-odds (`logits`) or probabilities."""
        if input == "logits":
            return cls(labels, scores, scipy.special.expit(scores.astype(np.float64)))
        return cls(labels, label_log_odds(scores), scores)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def count(self) -> int:
        """K."""
        return int(self.labels.shape[1])

    @cached_property
    def row_means(self) -> dict[str, NDArray[np.float64]]:
        """By name, the metrics that are means over rows: of each row the mean over labels (N,)."""
        signs = np.where(self.labels, 1.0, -1.0)
        return {
            "accuracy": ((self.log_odds > 0) == self.labels).mean(axis=1),
            "nll": -scipy.special.log_expit(signs * self.log_odds).mean(axis=1),
            "brier": 2
            * np.square(self.labels - self.probabilities.astype(np.float64)).mean(axis=1),
        }

    def take(self, rows: NDArray[np.intp]) -> LabelPredictions:
        """Return the predictions of some rows, by their indices (n,)."""
        return LabelPredictions(self.labels[rows], self.log_odds[rows], self.probabilities[rows])

    def of_label(self, k: int, metric: str) -> Predictions:
        """Return label k as two classes, as a metric in `LABEL_METRICS` reads it.

        For a calibration error the label is always the predicted class: its probability is the
        confidence, whether it is large or small.
        """
        y = self.labels[:, k].astype(np.int64)
        odds, p = self.log_odds[:, k], self.probabilities[:, k]
        pairs = np.stack([1 - p, p], axis=1)
        logs = scipy.special.log_expit(np.where(y, 1.0, -1.0) * odds.astype(np.float64))
        predicted = (odds > 0).astype(np.int64) if metric in _TOP_LABEL else np.ones_like(y)
        return Predictions(pairs, y, predicted, logs, pairs)


@dataclass(frozen=True)
class LabelEstimates:
    """Metrics by name: the means over labels, and those of each label."""

    average: dict[str, Estimate]
    labels: list[dict[str, Estimate]]


def evaluate_labels(
    predictions: LabelPredictions,
    *,
    sample_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    metrics: Iterable[str] | None = None,
    bins: int = 15,
    level: float | None = None,
) -> LabelEstimates:
    """Return metrics of each label and their means.

    `accuracy` is the share of rows where p > 1/2 agrees with the label; `brier` is 2(p − y)², as
    for two classes.

    The labels of a row depend on each other, so the row is the unit of sampling. The mean over
    labels of accuracy, NLL or Brier score is a mean over rows, with Student's interval, and
    Wilson's for accuracy. The interval of a mean calibration error goes from the mean of the lower
    ends to the mean of the upper ends: the error of a mean is at most the mean of the errors, so it
    is wide enough for any dependence. The floor of a mean is the mean of the floors.

    Parameters
    ----------
    sample_weight, weight_kind: as in `recalib.metrics.evaluate.evaluate`.
    metrics: names in `LABEL_METRICS`; by default accuracy, proper scores and ECE.
    bins: the number of bins of binned metrics.
    level: confidence of intervals; none by default.

    Raises
    ------
    InputError: an unknown metric.
    """
    named = [metrics] if isinstance(metrics, str) else metrics
    names = list(_DEFAULT if named is None else named)
    check_names("metrics", names, LABEL_METRICS)
    check_choice("weight_kind", weight_kind, WeightKind)
    if sample_weight is not None and weight_kind == "counts":
        rows = repeated_rows(sample_weight, rows=len(predictions), field="sample_weight")
        predictions, sample_weight = predictions.take(rows), None
    each = [
        {
            name: measure_all(
                predictions.of_label(k, name),
                sample_weight,
                metrics=[name],
                bins=bins,
                level=level,
            )[name]
            for name in names
        }
        for k in range(predictions.count)
    ]
    weights = check_weights(sample_weight, rows=len(predictions), field="sample_weight")
    weights = np.ones(len(predictions)) if weights is None else weights
    return LabelEstimates(
        {
            name: _average(
                [estimates[name] for estimates in each], predictions, name, weights, level
            )
            for name in names
        },
        each,
    )


class StreamingLabelEvaluation:
    """Accuracy, NLL, Brier score and ECE of a stream of batches, means over labels.

    They are those of `evaluate_labels`, in memory of one number for each label and bin.
    """

    def __init__(self, labels: int, bins: int = 15) -> None:
        self._bins = bins
        self._means = {name: Means() for name in _ROW_MEANS}
        #: Σ(y − p) of each label in each bin of p, (K · bins,).
        self._gaps = np.zeros(labels * bins)

    def add(
        self,
        labels: NDArray[np.bool_],
        *,
        logits: Floats | None = None,
        probabilities: Floats | None = None,
    ) -> None:
        """Add a batch of checked labels and scores (n, K): log-odds or probabilities."""
        kind, scores = one_of(logits, probabilities)
        predictions = LabelPredictions.from_scores(scores, labels, input=kind)
        for name, means in self._means.items():
            means.add(predictions.row_means[name])
        p = predictions.probabilities
        cells = bin_indices(p, self._bins) + self._bins * np.arange(predictions.count)
        gaps: NDArray[np.float64] = labels - p.astype(np.float64)
        self._gaps += group_sums(cells.ravel(), gaps.ravel(), len(self._gaps))

    def finish(self) -> dict[str, Estimate]:
        """Return the metrics of all rows so far, at least one."""
        estimates = {name: mean_estimate(m.totals, None) for name, m in self._means.items()}
        count = self._means["nll"].count * len(self._gaps) // self._bins
        return estimates | {"ece": Estimate(float(np.abs(self._gaps).sum() / count))}


def _average(
    estimates: list[Estimate],
    predictions: LabelPredictions,
    name: str,
    weights: NDArray[np.float64],
    level: float | None,
) -> Estimate:
    """Return the mean over labels of a metric."""

    def mean(field: str) -> float | None:
        values = [getattr(estimate, field) for estimate in estimates]
        return None if None in values else float(np.mean(values))

    value = float(np.mean([estimate.value for estimate in estimates]))
    if level is None:
        return Estimate(value)
    if name not in predictions.row_means:
        return Estimate(value, mean("low"), mean("high"), mean("floor"), mean("floor_high"))
    rows = predictions.row_means[name]
    state = Means()
    state.add(rows, weights)
    if METRICS[name].unit == "fraction":
        interval = fraction_estimate(state.totals, level, parts=len(estimates))
    else:
        interval = mean_estimate(state.totals, level)
    if interval.low is None or interval.high is None:
        return Estimate(value)
    # The value is summed in another order, which changes the last digits.
    return Estimate(value, min(interval.low, value), max(interval.high, value))
