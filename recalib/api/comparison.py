"""The public functions `compare` and `report`: arrays in, a comparison of maps or a page out."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from recalib.core.arrays import WeightKind, check_undeclared, undeclared_text
from recalib.core.card import PredictionPolicy
from recalib.core.class_names import check_label_rows, class_indices
from recalib.core.inputs import check_index, frame_columns, score_matrix
from recalib.core.label_arrays import label_resemblance
from recalib.core.options import check_choice
from recalib.errors import InputError, RecalibWarning
from recalib.files import LabelledData, Task
from recalib.fitting.auto import resolve_predictions
from recalib.fitting.comparison import Comparison, compatible_pairs
from recalib.fitting.comparison import compare as _compare
from recalib.fitting.fit import check_data

if TYPE_CHECKING:
    from recalib.reporting.html_report import LabelReport, Report, Source

Kind = Literal["logits", "probabilities"]


def compare(
    logits: Any,
    labels: ArrayLike,
    test_logits: Any = None,
    test_labels: ArrayLike | None = None,
    *,
    maps: str | Iterable[str] | None = None,
    objectives: str | Iterable[str] = ("nll",),
    input: Kind | None = None,
    class_labels: tuple[str, ...] | None = None,
    predictions: PredictionPolicy | None = None,
    preserve_accuracy: bool | None = None,
    level: float | None = 0.95,
    sample_weight: ArrayLike | None = None,
    test_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
) -> Comparison:
    """Fit several maps, compare them by cross-validation, and recommend one, as `recalib compare`.

    A notebook shows the result as a table. Its `recommended` is the recommended calibrator, fitted
    to all rows; `entries` has all, with their metrics on the test rows.

    Parameters
    ----------
    logits: (N, K) or (N,), and
    labels: (N,), as in `recalib.fit`: rows for fits and for cross-validation.
    test_logits, test_labels: rows for metrics, (M, K) and (M,), in the same classes. They have no
        influence on the recommendation. Without them there are no metrics.
    maps: names in `recalib.maps.MAPS`, or one name; by default all that fit the objectives.
    objectives: names in `recalib.objectives.OBJECTIVES`.
    input: whether the scores are logits or probabilities. By default they are logits, with a
        warning if they look like probabilities, and an error if they surely are.
    class_labels: names of the classes, if the labels are names.
    predictions: which predictions the recommended map may change, as for `map='auto'` in
        `recalib.fit`: `may_change` by default, `keep_order` or `keep`.
    preserve_accuracy: True is `keep`, False `may_change`.
    level: confidence of the metrics' intervals; None for none.
    sample_weight, test_weight: (N,) and (M,), weights of the rows, as in `recalib.fit` and
        `recalib.evaluate`: metrics are then those with a weighted form.
    weight_kind: `survey` or `counts`, that of `sample_weight`, as in `recalib.fit`.

    Raises
    ------
    InputError: invalid input, an unknown name, or no compatible pair of map and objective.

    Examples
    --------
    >>> comparison = recalib.compare(logits, labels, maps=["temperature", "vector"])
    >>> comparison.recommended.predict(new_logits).shape
    (400, 3)
    """
    pairs, _ = compatible_pairs(_names(maps), _names(objectives))
    kind: Kind = input or "logits"
    validation, class_labels = _labelled_data(logits, labels, kind, class_labels)
    _warn(check_undeclared(validation.logits) if input is None else "")
    test = None
    if (test_logits is None) != (test_labels is None):
        accepted = "both test_logits and test_labels, or neither"
        raise InputError("test_logits, test_labels", found="one of the two", accepted=accepted)
    if test_logits is not None and test_labels is not None:
        test = _test_data("test_", test_logits, test_labels, kind, class_labels, validation)
    if test is None and test_weight is not None:
        accepted = "none without test_logits"
        raise InputError("test_weight", found="weights", accepted=accepted)
    return _compare(
        validation,
        test,
        pairs,
        input=kind,
        predictions=resolve_predictions(predictions, preserve_accuracy),
        level=level,
        sample_weight=sample_weight,
        test_weight=test_weight,
        weight_kind=weight_kind,
    )


def report(
    logits: Any,
    labels: ArrayLike,
    test_logits: Any,
    test_labels: ArrayLike,
    *,
    maps: str | Iterable[str] | None = None,
    objectives: str | Iterable[str] = ("nll",),
    input: Kind | None = None,
    class_labels: tuple[str, ...] | None = None,
    predictions: PredictionPolicy | None = None,
    preserve_accuracy: bool | None = None,
    shift: Mapping[str, tuple[Any, ArrayLike]] | None = None,
    title: str = "Calibration report",
    task: Task = "multiclass",
) -> Report | LabelReport:
    """Return an HTML page with a recommendation, as `recalib report`. Needs `recalib[pictures]`.

    A notebook shows the page, and `save(path)` writes it. It loads nothing from the network.

    Parameters
    ----------
    logits, labels, test_logits, test_labels, maps, objectives, input, class_labels, predictions,
    preserve_accuracy: as in `compare`; the test rows are required.
    shift: scores and labels of shifted test sets by name, in order of increasing distance.
    title: the title of the page.
    task: `multilabel` if a row has any number of labels: scores and labels are then (N, K), as in
        `recalib.fit`, and the result is a `LabelReport`. There are no objectives, no shifted sets
        and neither `predictions` nor `preserve_accuracy`.

    Raises
    ------
    InputError: as `compare`.

    Examples
    --------
    >>> page = recalib.report(logits, labels, new_logits, new_labels, maps=["temperature"])
    >>> page.save("report.html")
    """
    from recalib.reporting.html_report import create_label_report, create_report

    kind: Kind = input or "logits"
    check_choice("task", task, Task)
    if task == "multilabel":
        check_label_options(objectives, shift, predictions, preserve_accuracy)
        rows, names = _label_data(logits, labels, kind, class_labels)
        _warn(label_resemblance(rows.logits) if input is None else "")
        fields = "test_logits", "test_labels"
        test_rows, _ = _label_data(
            test_logits, test_labels, kind, names, rows.logits.shape[1], fields
        )
        sources = _source("array", rows), _source("array", test_rows)
        return create_label_report(
            *sources, _names(maps), input=kind, class_labels=names, title=title
        )
    pairs, _ = compatible_pairs(_names(maps), _names(objectives))
    validation, names = _labelled_data(logits, labels, kind, class_labels)
    _warn(check_undeclared(validation.logits) if input is None else "")
    test = _test_data("test_", test_logits, test_labels, kind, names, validation)
    shifted = {
        name: _source(name, _test_data(f"shift {name}: ", *rows, kind, names, validation))
        for name, rows in (shift or {}).items()
    }
    return create_report(
        _source("array", validation),
        _source("array", test),
        pairs,
        input=kind,
        predictions=resolve_predictions(predictions, preserve_accuracy),
        class_names=names,
        shifted=shifted,
        title=title,
    )


def _names(names: str | Iterable[str] | None) -> list[str] | None:
    if names is None:
        return None
    return [names] if isinstance(names, str) else list(names)


def _warn(reason: str) -> None:
    """Warn, in the caller of the public function, of logits that look like probabilities."""
    if reason:
        warnings.warn(undeclared_text(reason), RecalibWarning, stacklevel=3)


def check_label_options(
    objectives: str | Iterable[str],
    shift: Mapping[str, Any] | None,
    predictions: PredictionPolicy | None,
    preserve_accuracy: bool | None,
) -> None:
    """Raise `InputError` for an argument that multilabel rows do not have."""
    if _names(objectives) != ["nll"]:
        raise InputError("objectives", found=f"{objectives}", accepted="nll for task multilabel")
    if shift:
        raise InputError("shift", found=", ".join(shift), accepted="none for task multilabel")
    accepted = "none for task multilabel: rows have no predicted class"
    if preserve_accuracy is not None:
        raise InputError("preserve_accuracy", found=f"{preserve_accuracy}", accepted=accepted)
    if predictions is not None:
        raise InputError("predictions", found=predictions, accepted=accepted)


def _label_data(
    scores: Any,
    labels: ArrayLike,
    input: Kind,
    names: tuple[str, ...] | None,
    classes: int | None = None,
    fields: tuple[str, str] = ("logits", "labels"),
) -> tuple[LabelledData, tuple[str, ...] | None]:
    """Return checked rows of independent labels, and the names of the labels if they are known."""
    matrix, y, known = check_label_rows(labels, scores, input, names, classes, fields)
    return LabelledData(matrix, y), known


def _source(name: str, data: LabelledData) -> Source:
    from recalib.reporting.html_report import Source

    digest = hashlib.sha256(np.ascontiguousarray(data.logits).data)
    digest.update(np.ascontiguousarray(data.labels).data)
    return Source(name, digest.hexdigest(), data, is_file=False)


def _test_data(
    prefix: str,
    scores: Any,
    labels: ArrayLike,
    input: Kind,
    names: tuple[str, ...] | None,
    validation: LabelledData,
) -> LabelledData:
    """Return checked rows in the classes of the rows for fits; errors name them by the prefix."""
    classes = validation.logits.shape[1]
    try:
        matrix = score_matrix(scores, input, input, names)
        if matrix.ndim == 2 and matrix.shape[1] != classes:
            accepted = f"{classes}, as in the rows for fits"
            raise InputError("logits", found=f"{matrix.shape[1]} classes", accepted=accepted)
        return _labelled_data(scores, labels, input, names)[0]
    except InputError as error:
        # Arguments of scores have one name; columns are those of a frame of scores.
        field = prefix + re.sub("^(columns|probabilities)", "logits", error.field)
        raise type(error)(field, found=error.found, accepted=error.accepted) from None


def _labelled_data(
    scores: Any, labels: ArrayLike, input: Kind, class_labels: tuple[str, ...] | None
) -> tuple[LabelledData, tuple[str, ...] | None]:
    """Return checked rows, and the names of the classes if they are known."""
    check_index(logits=scores, labels=labels)
    matrix = score_matrix(scores, input, input, class_labels)
    classes = matrix.shape[1] if matrix.ndim == 2 else 0
    columns = frame_columns(scores, class_labels)
    indices, names = class_indices(labels, classes, class_labels, columns)
    # `compare` takes scores as they are in files, not the logits of probabilities.
    _, checked = check_data(matrix, indices, input)
    return LabelledData(matrix, checked), names
