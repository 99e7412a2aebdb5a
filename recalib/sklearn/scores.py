"""Scores of scikit-learn classifiers: which method gives them, and a calibrator of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

from recalib.calibrator import Calibrator
from recalib.core.arrays import WeightKind
from recalib.errors import InputError
from recalib.fitting.fit import fit

ScoreKind = Literal["logits", "probabilities"]
ScoreMethod = Literal["auto", "decision_function", "predict_proba"]

_KINDS: dict[str, ScoreKind] = {"decision_function": "logits", "predict_proba": "probabilities"}


def score_method(estimator: Any, response_method: str) -> tuple[str, ScoreKind]:
    """Return the method that gives the scores of a classifier, and the kind of its values."""
    if response_method not in ("auto", *_KINDS):
        accepted = ", ".join(["auto", *_KINDS])
        raise InputError("response_method", found=repr(response_method), accepted=accepted)
    names = list(_KINDS) if response_method == "auto" else [response_method]
    for name in names:
        if hasattr(estimator, name):
            return name, _KINDS[name]
    accepted = f"a classifier with {' or '.join(names)}"
    raise InputError("estimator", found=repr(estimator), accepted=accepted)


def fit_calibrator(
    scores: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    *,
    classes: NDArray[Any],
    kind: ScoreKind | None,
    map: str,
    objective: str,
    options: Mapping[str, Any] | None,
    weight_kind: WeightKind,
) -> Calibrator:
    """Return a calibrator of `scores`, (N, K) or (N,), in float64.

    Parameters
    ----------
    y: (N,), members of `classes`.
    classes: (K,), in the order of the columns; the card has them as texts unless they are 0 to
        K − 1.
    kind: as `input` of `recalib.fit`.

    Raises
    ------
    InputError: invalid input.
    """
    labels = class_numbers(y, classes)
    numbered = np.array_equal(classes, np.arange(len(classes)))
    return fit(
        np.asarray(scores, np.float64),
        labels,
        map,
        objective,
        input=kind,
        sample_weight=None if sample_weight is None else np.asarray(sample_weight),
        weight_kind=weight_kind,
        class_labels=None if numbered else tuple(str(name) for name in classes.tolist()),
        **(options or {}),
    )


def class_numbers(y: ArrayLike, classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the positions of `y` (N,) in `classes` (K,); raise `InputError` for other values."""
    labels = column_or_1d(y)
    unknown = np.setdiff1d(labels, classes)
    if len(unknown) > 0:
        accepted = ", ".join(str(name) for name in classes[:10].tolist())
        raise InputError("y", found=f"the class {unknown.tolist()[0]!r}", accepted=accepted)
    order = np.argsort(classes)
    return order[np.searchsorted(classes[order], labels)]
