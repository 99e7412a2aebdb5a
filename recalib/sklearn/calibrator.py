"""A transformer of scores to calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from recalib.core.arrays import WeightKind
from recalib.errors import InputError
from recalib.fitting.fit_card import show_warnings
from recalib.sklearn.scores import ScoreKind, fit_calibrator


class Calibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer of scores (N, K), or (N,) of two classes, to calibrated probabilities (N, K).

    Parameters
    ----------
    map: a name in `recalib.maps.MAPS`, or `auto`, as in `recalib.fit`.
    objective: a name in `recalib.objectives.OBJECTIVES`.
    options: options of the map and the objective by name.
    input: `logits` or `probabilities`, the kind of scores; logits by default, as in
        `recalib.fit`.
    weight_kind: `survey` or `counts`, what `sample_weight` is; see `recalib.fit`.

    Attributes
    ----------
    calibrator_: the `recalib.Calibrator`; `calibrator_.save("model.calib")` writes it.
    classes_: (K,), the classes in the order of the columns.

    Examples
    --------
    >>> from recalib.sklearn import Calibrator
    >>> Calibrator(map="isotonic").fit(logits, labels).transform(new_logits).shape
    (400, 3)
    """

    def __init__(
        self,
        *,
        map: str = "auto",
        objective: str = "nll",
        options: Mapping[str, Any] | None = None,
        input: ScoreKind | None = None,
        weight_kind: WeightKind = "survey",
    ) -> None:
        self.map = map
        self.objective = objective
        self.options = options
        self.input = input
        self.weight_kind = weight_kind

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the calibrator to scores and labels.

        Parameters
        ----------
        X: (N, K), logits or probabilities; for two classes also (N,) or (N, 1), of the second.
        y: (N,), K classes. Columns are in the order of the sorted classes, or those of a data
            frame in the order of their names.
        sample_weight: (N,), weights of rows, equal by default.

        Raises
        ------
        InputError: invalid input, or another number of classes than of columns.
        """
        X, y = validate_data(self, _as_columns(X), y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = _in_column_order(np.unique(y), getattr(self, "feature_names_in_", ()))
        classes, columns = len(self.classes_), X.shape[1]
        if columns != classes and (columns, classes) != (1, 2):
            raise InputError(
                "X",
                found=f"{columns} feature(s) for {classes} class(es) in y",
                accepted="one for each class, or one for two classes",
            )
        self.calibrator_ = fit_calibrator(
            _scores(X), y, sample_weight, classes=self.classes_, kind=self.input,
            map=self.map, objective=self.objective, options=self.options,
            weight_kind=self.weight_kind,
        )  # fmt: skip
        show_warnings(self.calibrator_.card, stacklevel=3)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities (N, K) of scores, as `fit` takes them."""
        check_is_fitted(self)
        X = validate_data(self, _as_columns(X), dtype=np.float64, reset=False)
        return self.calibrator_.predict(_scores(X), input=self.calibrator_.card.input)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names of the classes; `input_features` are those of `fit`, or None."""
        check_is_fitted(self)
        super().get_feature_names_out(input_features)  # check them
        return np.array([str(name) for name in self.classes_.tolist()], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # As in `IsotonicRegression`: scikit-learn checks estimators of two-dimensional input with
        # any number of columns for any number of classes, while scores have a column for each.
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _in_column_order(classes: NDArray[Any], columns: Sequence[str]) -> NDArray[Any]:
    """Return classes in the order of the columns if these have their names; else unchanged."""
    names = [str(name) for name in classes.tolist()]
    if sorted(names) != sorted(columns):
        return classes
    return classes[[names.index(column) for column in columns]]


def _as_columns(X: Any) -> Any:
    """Return scores (N,) as one column."""
    return np.reshape(X, (-1, 1)) if getattr(X, "ndim", 2) == 1 else X


def _scores(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one column as scores of two classes, (N,)."""
    return X[:, 0] if X.shape[1] == 1 else X
