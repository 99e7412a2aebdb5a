"""Paired comparison of predictions of independent labels: of each label, and of the means.

Legend: N rows, K labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.metrics import METRICS
from recalib.metrics.multilabel import LabelEstimates, LabelPredictions
from recalib.metrics.paired import Change, change_of, paired_changes, verdict_of


@dataclass(frozen=True)
class LabelChanges:
    """Changes of metrics by name: those of the means over labels, and those of each label."""

    average: dict[str, Change]
    labels: list[dict[str, Change]]


def paired_label_changes(
    before: LabelPredictions,
    after: LabelPredictions,
    estimates_before: LabelEstimates,
    estimates_after: LabelEstimates,
    *,
    bins: int = 15,
    level: float = 0.95,
) -> LabelChanges:
    """Return the change of each metric, with an interval of `level`.

    The changes of a label are those of `recalib.metrics.paired.paired_changes`. The change of a
    mean of accuracy, NLL or Brier score is one of the mean over rows, by the same formula: the rows
    are the groups. The interval of the change of a mean calibration error has the means of
    the ends, as in `evaluate_labels`.

    Parameters
    ----------
    before, after: two predictions of the same N rows and labels; N >= 2.
    estimates_before: the metrics of `before`, measured with `level`.
    estimates_after: the same metrics of `after`.
    bins: the number of bins of binned metrics, as for the estimates.

    Raises
    ------
    InputError: fewer than two rows, or labels that differ.
    """
    if not np.array_equal(before.labels, after.labels):
        raise InputError("after", found="other labels", accepted="the rows and labels of `before`")
    labels: list[dict[str, Change]] = []
    for k, (old, new) in enumerate(
        zip(estimates_before.labels, estimates_after.labels, strict=True)
    ):
        labels.append({})
        for name in new:
            first, second = before.of_label(k, name), after.of_label(k, name)
            labels[k] |= paired_changes(
                first, second, {name: old[name]}, {name: new[name]}, bins=bins, level=level
            )
    average = {}
    for name in estimates_after.average:
        if name in after.row_means:
            means = np.stack([before.row_means[name], after.row_means[name]])
            estimates = estimates_before.average[name], estimates_after.average[name]
            average[name] = change_of(name, estimates, _without_each_row(means), level)
        else:
            average[name] = _mean_of_labels(name, [changes[name] for changes in labels])
    return LabelChanges(average, labels)


def _without_each_row(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means of values (2, N) over all rows but each."""
    means: NDArray[np.float64] = values.sum(axis=1, keepdims=True) - values
    means /= values.shape[1] - 1
    return means


def _mean_of_labels(name: str, changes: list[Change]) -> Change:
    if all(change.verdict == "equal" for change in changes):
        return Change(0.0, 0.0, 0.0, "equal")
    value, low, high = (
        float(np.mean([getattr(change, field) for change in changes]))
        for field in ("value", "low", "high")
    )
    return Change(value, low, high, verdict_of(METRICS[name].better, low, high))
