"""Calibration on test sets from other distributions than the validation set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from recalib.calibrator import Calibrator
from recalib.files import LabelledData
from recalib.metrics import Estimate
from recalib.metrics.evaluate import evaluate
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.headline import headline_error
from recalib.reporting.plots import ShiftRow, error_over_shift


@dataclass(frozen=True)
class UnderShift:
    """One test set, or a segment of it, measured before and after the calibrator."""

    name: str
    rows: int
    before: Mapping[str, Estimate]
    after: Mapping[str, Estimate]


def measure_shift(
    sets: Mapping[str, LabelledData],
    calibrator: Calibrator,
    input: Literal["logits", "probabilities"],
    level: float,
) -> list[UnderShift]:
    """Return accuracy, mean confidence, NLL and ECE of each set, with intervals of `level`.

    The ECE of two classes is that of P(y = 1).
    """
    measured = []
    for name, data in sets.items():
        scores: dict[str, Any] = {input: data.logits}
        answer = calibrator.predict(data.logits, input=input)
        names = set_metrics(data.logits.shape[1])
        before = evaluate(data.labels, **scores, metrics=names, level=level)
        after = evaluate(data.labels, probabilities=answer, metrics=names, level=level)
        measured.append(UnderShift(name, len(data.labels), before, after))
    return measured


def set_metrics(classes: int) -> tuple[str, ...]:
    """Return the metrics of a set of rows, for K = `classes`."""
    return "accuracy", "mean_confidence", "nll", "binary_ece" if classes == 2 else "ece"


def segments_of(
    before: Mapping[str, Evaluation[Estimate]], after: Mapping[str, Evaluation[Estimate]]
) -> list[UnderShift]:
    """Return each segment, measured without and with a calibrator."""
    return [UnderShift(name, part.rows, part, after[name]) for name, part in before.items()]


def draw_shift(
    measured: Sequence[UnderShift], labels: Sequence[str], width: int
) -> alt.LayerChart | alt.FacetChart:
    """Return a plot of the ECE of each set, in order.

    `labels` are those of the predictions before and after calibration, or of the first alone.
    """
    rows = []
    for place, result in enumerate(measured):
        for label, metrics in zip(labels, (result.before, result.after), strict=False):
            ece = metrics[headline_error(metrics)]
            rows.append(ShiftRow(label, place, ece.value, ece.low, ece.high))
    return error_over_shift(
        rows,
        n=[result.rows for result in measured],
        names=[result.name for result in measured],
        width=width,
    )


def about_shift(measured: Sequence[UnderShift]) -> Iterator[str]:
    """Yield a sentence for each set on which the calibrator increases the ECE significantly."""
    for result in measured:
        before, after = (side[headline_error(side)] for side in (result.before, result.after))
        if before.high is not None and after.low is not None and after.low > before.high:
            yield (
                f"On {result.name} the calibrator does harm: its ECE is {after.value:.2%} with it "
                f"and {before.value:.2%} without."
            )
