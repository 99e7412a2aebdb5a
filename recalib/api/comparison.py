"""The public function `compare`: arrays in, a comparison of maps out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from numpy.typing import ArrayLike

from recalib.errors import InputError
from recalib.files import LabelledData
from recalib.fitting.comparison import Comparison, compatible_pairs
from recalib.fitting.comparison import compare as _compare
from recalib.fitting.fit import check_data
from recalib.inputs import class_indices, column_names, score_matrix

__all__ = ["compare", "labelled_data"]

Kind = Literal["logits", "probabilities"]


def compare(
    logits: Any,
    labels: ArrayLike,
    test_logits: Any = None,
    test_labels: ArrayLike | None = None,
    *,
    maps: Iterable[str] | None = None,
    objectives: Iterable[str] = ("nll",),
    input: Kind = "logits",
    class_labels: tuple[str, ...] | None = None,
    preserve_accuracy: bool = True,
    level: float | None = 0.95,
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
    maps: names in `recalib.maps.MAPS`, by default all that fit the objectives.
    objectives: names in `recalib.objectives.OBJECTIVES`.
    input: whether the scores are logits or probabilities.
    class_labels: names of the classes, if the labels are names.
    preserve_accuracy: whether to recommend only maps that never change predictions.
    level: confidence of the metrics' intervals; None for none.

    Raises
    ------
    InputError: invalid input, an unknown name, or no compatible pair of map and objective.

    Examples
    --------
    >>> comparison = recalib.compare(logits, labels, maps=["vector"])  # doctest: +SKIP
    >>> comparison.recommended.predict(new_logits)  # doctest: +SKIP
    """
    pairs, _ = compatible_pairs(maps, objectives)
    validation, class_labels = labelled_data(logits, labels, input, class_labels)
    test = None
    if (test_logits is None) != (test_labels is None):
        accepted = "both test_logits and test_labels, or neither"
        raise InputError("test_logits, test_labels", found="one of the two", accepted=accepted)
    if test_logits is not None and test_labels is not None:
        test, _ = labelled_data(
            test_logits, test_labels, input, class_labels, validation.logits.shape[1]
        )
    options = {"input": input, "preserve_accuracy": preserve_accuracy, "level": level}
    return _compare(validation, test, pairs, **options)  # type: ignore[arg-type]


def labelled_data(
    scores: Any,
    labels: ArrayLike,
    input: Kind,
    class_labels: tuple[str, ...] | None,
    classes: int | None = None,
) -> tuple[LabelledData, tuple[str, ...] | None]:
    """Return checked rows, and the names of the classes if they are known.

    Parameters
    ----------
    classes: the required K, by default any.
    """
    matrix = score_matrix(scores, input, input)
    width = matrix.shape[1] if matrix.ndim == 2 else 0
    if classes is not None and matrix.ndim == 2 and width != classes:
        accepted = f"{classes}, as in the rows for fits"
        raise InputError("test_logits", found=f"{width} classes", accepted=accepted)
    indices, names = class_indices(labels, width, class_labels, column_names(scores))
    # `check_data` refuses what it cannot use; what files hold is the scores as they are.
    _, checked = check_data(matrix, indices, input)
    return LabelledData(matrix, checked), names
