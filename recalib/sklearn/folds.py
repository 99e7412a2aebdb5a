"""A classifier of one fold with its calibrator, as an ensemble averages them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params

from recalib.calibrator import Calibrator
from recalib.sklearn.scores import ScoreKind, fit_calibrator


@dataclass(frozen=True)
class CalibratedFold:
    """A fitted classifier, and the calibrator of its scores."""

    estimator: Any
    calibrator: Calibrator
    #: The method of the classifier whose values the calibrator takes.
    response_method: str
    #: (C,), the classes of the columns of `predict_proba`.
    classes: NDArray[Any]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, (N, C)."""
        return self.calibrator.predict(self.scores(X), input=self.calibrator.card.input)

    def scores(self, X: Any) -> NDArray[np.float64]:
        """Return what the calibrator takes, (N, C) or (N,)."""
        return np.asarray(getattr(self.estimator, self.response_method)(X), np.float64)


def fit_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    sample_weight: NDArray[Any] | None,
    split: tuple[NDArray[np.intp], NDArray[np.intp]],
    parameters: dict[str, Any],
    response_method: str,
    kind: ScoreKind,
    calibration: dict[str, Any],
) -> CalibratedFold:
    """Return a copy of the classifier, fitted to the training rows and calibrated on the others.

    Test rows of classes that the training rows lack are left out.

    Parameters
    ----------
    parameters: of the classifier's `fit`.
    kind, calibration: of `fit_calibrator`.
    """
    train, test = split
    own = _check_method_params(X, parameters, indices=train)
    fitted = clone(estimator).fit(*_safe_split(estimator, X, y, train), **own)
    test = test[np.isin(y[test], fitted.classes_)]
    scores = getattr(fitted, response_method)(_safe_split(estimator, X, y, test, train)[0])
    weights = None if sample_weight is None else sample_weight[test]
    calibrator = fit_calibrator(
        scores, y[test], weights, classes=fitted.classes_, kind=kind, **calibration
    )
    return CalibratedFold(fitted, calibrator, response_method, fitted.classes_)


def average(folds: list[CalibratedFold], X: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean of the folds' probabilities (N, K); that of a class that one lacks is 0."""
    total: Any = 0.0
    for fold in folds:
        own = fold.predict_proba(X)
        probabilities = np.zeros((len(own), len(classes)))
        probabilities[:, np.searchsorted(classes, fold.classes)] = own
        total = total + probabilities
    return np.asarray(total / len(folds))


def rows_with_weight(
    X: Any, y: NDArray[Any], sample_weight: Any, parameters: dict[str, Any]
) -> tuple[Any, NDArray[Any], NDArray[Any], dict[str, Any]]:
    """Return the rows whose weight is not 0, unless all are: folds then do not depend on others."""
    weights = np.asarray(sample_weight)
    rows = np.flatnonzero(weights) if weights.shape == y.shape else np.arange(0)
    if len(rows) in (0, len(y)):
        return X, y, weights, parameters
    own = _check_method_params(X, parameters, indices=rows)
    return _safe_indexing(X, rows), y[rows], weights[rows], own
