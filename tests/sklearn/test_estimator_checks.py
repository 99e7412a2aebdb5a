"""scikit-learn's checks of estimators: all but one, for `auto`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from recalib.sklearn import CalibratedClassifier, Calibrator

#: Some checks need an error where the estimator inside first warns of a division by zero, and most
#: have labels without relation to the rows, or separable ones, whose fits are doubtful.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default::RuntimeWarning"),
    pytest.mark.filterwarnings("default::recalib.errors.RecalibWarning"),
]


class OnProjections(TransformerMixin, BaseEstimator):
    """A calibrator of as many random projections of features as there are classes.

    The checks have any number of features for any number of classes, and a calibrator takes a
    column for each class.
    """

    def __init__(self, calibrator: Calibrator) -> None:
        self.calibrator = calibrator

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64)
        rng = np.random.default_rng(0)
        self.projections_ = rng.normal(size=(X.shape[1], max(2, len(np.unique(y)))))
        self.calibrator_ = clone(self.calibrator).fit(X @ self.projections_, y, sample_weight)
        return self

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.calibrator_.transform(X @ self.projections_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """`auto` draws folds of rows: a row of weight 2 is in one fold, two equal rows may be in two.

    The maps that it fits pass, as tests/fitting/test_weights.py shows for each.
    """
    if getattr(estimator, "map", None) != "auto":
        return {}
    names = ("dense_data", "sparse_data")
    return {f"check_sample_weight_equivalence_on_{name}": "random folds" for name in names}


@parametrize_with_checks(
    [
        CalibratedClassifier(LogisticRegression(C=1), cv=3),
        CalibratedClassifier(GaussianNB(), map="temperature", cv=3),
        OnProjections(Calibrator(map="temperature")),
    ],
    expected_failed_checks=expected_failed_checks,
)
def test_estimator_passes_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
