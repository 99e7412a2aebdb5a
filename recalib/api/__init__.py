"""The public functions `evaluate` and `load`, and the pictures of arrays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from recalib.calibrator import Calibrator
from recalib.core.arrays import (
    WeightKind,
    check_labels,
    check_logits,
    check_matrix,
    check_probabilities,
    probability_resemblance,
)
from recalib.core.class_names import check_label_rows, class_indices
from recalib.core.inputs import check_index, counted_rows, frame_columns, one_of, score_matrix
from recalib.core.label_arrays import label_resemblance
from recalib.core.options import check_choice
from recalib.errors import InputError, RecalibWarning
from recalib.files import Input, Task
from recalib.metrics import Predictions
from recalib.metrics.evaluate import evaluate as _evaluate
from recalib.metrics.evaluation import Evaluation, select_parts
from recalib.metrics.multilabel import LabelPredictions, evaluate_labels
from recalib.stats.column_order import column_order_doubt

if TYPE_CHECKING:
    from recalib.reporting.plots import Picture

__all__ = [
    "classwise_diagram",
    "confidence_histogram",
    "evaluate",
    "load",
    "reliability_diagram",
    "risk_coverage",
]


def evaluate(
    labels: ArrayLike,
    probabilities: Any = None,
    *,
    logits: Any = None,
    sample_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    ignore_index: int | None = None,
    metrics: Iterable[str] | None = None,
    bins: int = 15,
    class_labels: tuple[str, ...] | None = None,
    intervals: bool = False,
    floors: bool | None = None,
    level: float = 0.95,
    task: Task = "multiclass",
    segments: Any = None,
) -> Evaluation[Any]:
    """Return metrics of predictions by name: numbers, or with `intervals` an `Estimate` each.

    The result is a dictionary that a notebook and `print` show as a table. Logits that look like
    probabilities give a `RecalibWarning`, and so do columns that look swapped.

    With `task="multilabel"` the metrics are means over labels. The result has an attribute
    `labels`: the evaluation of each label by its name or number. With `segments` it has one of each
    segment in `segments`, whose intervals hold together: each has the level 1 − (1 − `level`) / G.

    Parameters
    ----------
    labels: (N,), integers in [0, K), truth values for two classes, or names, as in `recalib.fit`;
        (N, ...) for dense predictions (N, K, ...), in which each pixel is a row.
    probabilities: (N, K), or (N,) of class 1 of 2; or
    logits: (N, K), or the log-odds (N,) of class 1 of 2; exactly one of the two.
    sample_weight: (N,), how many rows of the population each row stands for, on any scale.
    weight_kind: `counts` if a weight is a whole number of equal rows that a row replaces: metrics,
        intervals and floors are those of the repeated rows, and so is the memory.
    ignore_index: the label of rows that do not count, such as 255 for void pixels; none by default.
    metrics: names in `recalib.metrics.METRICS`, or one name; by default all but the slow ones, and
        with weights all of these that have a weighted form.
    bins: the number of bins of binned metrics.
    class_labels: names of the classes, if the labels are names.
    intervals: whether to return an `Estimate` with `low` and `high` of each metric.
    floors: whether to return an `Estimate` with `floor` and `floor_high`: the metric of a perfectly
        calibrated classifier. By default as `intervals`.
    level: confidence of the intervals.
    task: `multilabel` for independent labels: `labels` are zeros and ones (N, K), `logits` log-odds
        or `probabilities` (N, K), `metrics` names in `recalib.metrics.multilabel.LABEL_METRICS`.
    segments: (N,), texts, integers or booleans, such as a country; an empty text or a null is no
        segment. Or several such columns, as a dictionary or a data frame. Not for `multilabel`, nor
        together with `ignore_index`.

    Raises
    ------
    InputError: invalid input, an unknown metric, a metric without a weighted form, or both or
        neither of the two arrays.

    Examples
    --------
    >>> evaluate([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], metrics=["accuracy"])
    <Evaluation accuracy 66.67%>
    >>> estimates = evaluate(["no", "yes", "yes"], [0.2, 0.6, 0.7], intervals=True)
    >>> estimates["ece"].low <= estimates["ece"].value <= estimates["ece"].high
    True
    >>> evaluate([0, 1], [0.2, 0.6], metrics=["accuracy"], segments=["DE", "FR"]).segments
    {'segment=DE': <Evaluation accuracy 100.00%>, 'segment=FR': <Evaluation accuracy 100.00%>}
    """
    kind, scores = one_of(logits, probabilities)
    check_index(**{kind: scores, "labels": labels, "sample_weight": sample_weight})
    interval_level = level if intervals or floors else None
    if segments is not None and (task == "multilabel" or ignore_index is not None):
        found = "multilabel rows, or ignore_index"
        raise InputError("segments", found=found, accepted="rows of one label, all of them")
    if task == "multilabel":
        if ignore_index is not None:
            raise InputError("ignore_index", found=f"{ignore_index}", accepted="none: multilabel")
        return _evaluate_labels(
            labels, scores, kind, class_labels, intervals, floors,
            sample_weight=sample_weight, weight_kind=weight_kind, metrics=metrics, bins=bins,
            level=interval_level,
        )  # fmt: skip
    check_choice("task", task, Task)
    array = score_matrix(scores, kind, kind, class_labels)
    rows = counted_rows(array, labels, ignore_index, kind)
    matrix = rows.scores
    indices = _indices(rows.labels, matrix, class_labels, scores)
    estimates = _evaluate(
        indices,
        logits=matrix if kind == "logits" else None,
        probabilities=matrix if kind == "probabilities" else None,
        sample_weight=rows.of_rows(sample_weight, "sample_weight"),
        weight_kind=weight_kind,
        metrics=metrics,
        bins=bins,
        level=interval_level,
        segments=segments,
    )
    if kind == "logits":
        _warn_of_probabilities(probability_resemblance(matrix), stacklevel=3)
    checked = check_matrix(matrix, None, kind, kind)
    if doubt := column_order_doubt(checked, check_labels(indices, logits=checked), kind):
        warnings.warn(doubt, RecalibWarning, stacklevel=2)
    return select_parts(estimates, intervals, floors)


def _evaluate_labels(
    labels: ArrayLike,
    scores: Any,
    kind: Input,
    names: tuple[str, ...] | None,
    intervals: bool,
    floors: bool | None,
    **options: Any,
) -> Evaluation[Any]:
    predictions, known = _label_predictions(labels, scores, kind, names)
    if kind == "logits":
        _warn_of_probabilities(label_resemblance(predictions.log_odds), stacklevel=4)
    known = known or tuple(str(k) for k in range(predictions.count))
    result = evaluate_labels(predictions, **options)
    evaluation = select_parts(result.average, intervals, floors)
    evaluation.labels = {
        name: select_parts(estimates, intervals, floors)
        for name, estimates in zip(known, result.labels, strict=True)
    }
    return evaluation


def _label_predictions(
    labels: ArrayLike, scores: Any, kind: Input, names: tuple[str, ...] | None
) -> tuple[LabelPredictions, tuple[str, ...] | None]:
    """Return checked predictions of independent labels, and the names of the labels, if any."""
    matrix, y, known = check_label_rows(labels, scores, kind, names)
    return LabelPredictions.from_scores(matrix, y, input=kind), known


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a parameter file; see `Calibrator.load`.

    Examples
    --------
    >>> calibrator.save("best.calib")
    >>> recalib.load("best.calib").predict(new_logits).shape
    (400, 3)
    """
    return Calibrator.load(path)


def reliability_diagram(
    labels: ArrayLike,
    probabilities: Any = None,
    *,
    logits: Any = None,
    bins: int = 15,
    smooth: bool = False,
) -> Picture:
    """Return a reliability diagram: accuracy over confidence, with 95% intervals.

    The picture shows itself in a notebook, `picture.save("diagram.png")` writes a file, and
    `picture.specification` is the Vega-Lite specification. Needs `recalib[pictures]`.

    Parameters
    ----------
    labels: as in `evaluate`.
    probabilities: (N, K), or (N,) of class 1 of 2; or a dictionary of two such, by the title of the
        panel, such as `{"before": ..., "after": ...}`.
    logits: the same for logits; exactly one of the two.
    bins: the number of bins, at most 100.
    smooth: a curve with a band instead of bars.

    Raises
    ------
    InputError: invalid input, or both or neither of the two arrays.

    Examples
    --------
    >>> recalib.reliability_diagram(labels, calibrator.predict(logits)).save("diagram.svg")
    """
    from recalib.reporting import plots

    series = _series(labels, logits, probabilities)
    return plots.Picture(plots.reliability_diagram(series, bins=bins, smooth=smooth))


def confidence_histogram(
    labels: ArrayLike, probabilities: Any = None, *, logits: Any = None, bins: int = 15
) -> Picture:
    """Return a histogram of confidences of right and wrong rows; see `reliability_diagram`.

    Examples
    --------
    >>> recalib.confidence_histogram(labels, logits=logits).save("confidence.svg")
    """
    from recalib.reporting import plots

    return plots.Picture(
        plots.confidence_histogram(_series(labels, logits, probabilities), bins=bins)
    )


def risk_coverage(labels: ArrayLike, probabilities: Any = None, *, logits: Any = None) -> Picture:
    """Return the error rate of the most confident rows over their share, for up to eight series.

    Parameters and result are those of `reliability_diagram`.

    Examples
    --------
    >>> from scipy.special import softmax
    >>> series = {"before": softmax(logits, axis=1), "after": calibrator.predict(logits)}
    >>> recalib.risk_coverage(labels, series).save("risk.svg")
    """
    from recalib.reporting import plots

    return plots.Picture(plots.risk_coverage(_series(labels, logits, probabilities)))


def classwise_diagram(
    labels: ArrayLike,
    probabilities: Any = None,
    *,
    logits: Any = None,
    class_labels: tuple[str, ...] | None = None,
    worst: int = 6,
    bins: int = 15,
    task: Task = "multiclass",
) -> Picture:
    """Return reliability diagrams of the `worst` calibrated classes; see `reliability_diagram`.

    With `task="multilabel"` they are those of independent labels; the scores are as in `evaluate`.

    Examples
    --------
    >>> recalib.classwise_diagram(labels, logits=logits, worst=2).save("classes.svg")
    """
    from recalib.reporting import plots

    if task == "multilabel":
        kind, scores = one_of(logits, probabilities)
        predictions_of_labels, names = _label_predictions(labels, scores, kind, class_labels)
        if kind == "logits":
            _warn_of_probabilities(label_resemblance(predictions_of_labels.log_odds), stacklevel=3)
        return plots.Picture(
            plots.label_diagram(predictions_of_labels, labels=names, worst=worst, bins=bins)
        )
    check_choice("task", task, Task)
    ((_, predictions),) = _series(labels, logits, probabilities, class_labels).items()
    return plots.Picture(
        plots.classwise_diagram(predictions, classes=class_labels, worst=worst, bins=bins)
    )


def _warn_of_probabilities(resemblance: str, *, stacklevel: int) -> None:
    """Warn, in the caller of the public function, of logits that look like probabilities."""
    if resemblance:
        message = f"logits: {resemblance}; if these are probabilities, pass them as probabilities="
        warnings.warn(message, RecalibWarning, stacklevel=stacklevel)


def _indices(
    labels: ArrayLike, matrix: Any, class_labels: tuple[str, ...] | None, scores: Any
) -> Any:
    classes = matrix.shape[1] if matrix.ndim == 2 else 0
    return class_indices(labels, classes, class_labels, frame_columns(scores, class_labels))[0]


def _series(
    labels: ArrayLike,
    logits: Any,
    probabilities: Any,
    class_labels: tuple[str, ...] | None = None,
) -> dict[str, Predictions]:
    """Return the predictions of each series by its title."""
    kind, values = one_of(logits, probabilities)
    by_title = values if isinstance(values, Mapping) else {"": values}
    series = {}
    for title, scores in by_title.items():
        check_index(**{kind: scores, "labels": labels})
        matrix = score_matrix(scores, kind, kind, class_labels)
        indices = np.asarray(_indices(labels, matrix, class_labels, scores))
        if kind == "logits":
            z = check_logits(matrix)
            _warn_of_probabilities(probability_resemblance(z), stacklevel=4)
            series[title] = Predictions.from_logits(z, check_labels(indices, logits=z))
        else:
            p = check_probabilities(matrix)
            series[title] = Predictions.from_probabilities(p, check_labels(indices, logits=p))
    return series
