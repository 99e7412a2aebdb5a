"""A classifier with a calibrator behind its scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import numpy as np
import sklearn
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from recalib.errors import InputError, RecalibWarning
from recalib.sklearn.scores import ScoreMethod, fit_calibrator, score_method

__all__ = ["CalibratedClassifier"]


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are calibrated by cross-validation.

    `fit` computes the scores of each row by a copy of the estimator that was fitted to the other
    folds, fits one calibrator to these scores, and fits the estimator to all rows, as
    `sklearn.calibration.CalibratedClassifierCV(ensemble=False)` does. A fitted estimator is not
    changed, with `cv="prefit"` or as a `FrozenEstimator`: all rows are for the calibrator, and the
    estimator must have been fitted to other rows.

    Parameters
    ----------
    estimator: a classifier with `decision_function` or `predict_proba`.
    map: a name in `recalib.maps.MAPS`, or `auto`, as in `recalib.fit`.
    objective: a name in `recalib.objectives.OBJECTIVES`.
    options: options of the map and the objective by name.
    cv: the number of stratified folds, a splitter, pairs of training and test rows that test each
        row once, or `prefit`.
    response_method: the scores to calibrate. `decision_function` are logits, or the log-odds of
        the second of two classes; `predict_proba` are probabilities. `auto` takes the first that
        the estimator has.
    n_jobs: the number of processes that fit the folds, as in `cross_val_predict`.

    Attributes
    ----------
    calibrator_: the `recalib.Calibrator`; `calibrator_.save("model.calib")` writes it.
    estimator_: the fitted classifier.
    classes_: (K,), the classes in the order of the columns.
    response_method_: the method of `estimator_` whose values the calibrator takes.
    n_features_in_, feature_names_in_: those of `estimator_`, if it has them.

    Examples
    --------
    >>> model = CalibratedClassifier(LinearSVC(), map="temperature").fit(X, y)  # doctest: +SKIP
    >>> cross_val_score(model, X, y, scoring="neg_log_loss")  # doctest: +SKIP
    """

    def __init__(
        self,
        estimator: Any,
        *,
        map: str = "auto",
        objective: str = "nll",
        options: Mapping[str, Any] | None = None,
        cv: int | Literal["prefit"] | Iterable[Any] | Any = 5,
        response_method: ScoreMethod = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.map = map
        self.objective = objective
        self.options = options
        self.cv = cv
        self.response_method = response_method
        self.n_jobs = n_jobs

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **fit_params: Any
    ) -> Self:
        """Fit the estimator and the calibrator.

        Parameters
        ----------
        X: (N, F), as the estimator accepts it.
        y: (N,), classes.
        sample_weight: (N,), weights of rows, for the calibrator, and for the estimator if its `fit`
            has this parameter. With metadata routing, the estimator gets them if it requests them.
        fit_params: further parameters of the estimator's `fit`, and with metadata routing of the
            splitter's `split`.

        Raises
        ------
        InputError: invalid input, fewer than two classes, or a class with fewer rows than folds.
        """
        check_classification_targets(y)
        X, y = indexable(X, column_or_1d(y, warn=True))
        routed = self._route(sample_weight, fit_params)
        method, kind = score_method(self.estimator, self.response_method)
        if self.cv == "prefit" or isinstance(self.estimator, FrozenEstimator):
            check_is_fitted(self.estimator)
            self.estimator_, self.classes_ = self.estimator, np.asarray(self.estimator.classes_)
            scores = getattr(self.estimator, method)(X)
        else:
            self.classes_ = LabelEncoder().fit(y).classes_
            splits = self._splits(X, y, routed.splitter.split)
            scores = cross_val_predict(
                clone(self.estimator), X, y, cv=splits, method=method, n_jobs=self.n_jobs,
                params=routed.estimator.fit,
            )  # fmt: skip
            self.estimator_ = clone(self.estimator).fit(X, y, **routed.estimator.fit)
        self.response_method_ = method
        self.calibrator_ = fit_calibrator(
            scores, y, sample_weight, classes=self.classes_, kind=kind,
            map=self.map, objective=self.objective, options=self.options,
        )  # fmt: skip
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, (N, K), in the order of `classes_`."""
        check_is_fitted(self)
        scores = getattr(self.estimator_, self.response_method_)(X)
        probabilities: NDArray[np.float64] = self.calibrator_.predict(
            np.asarray(scores, np.float64), input=self.calibrator_.card.input
        )
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest calibrated probability, (N,)."""
        check_is_fitted(self)
        classes: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return classes

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the router of the parameters of `fit`."""
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(
            estimator=self.estimator,
            method_mapping=MethodMapping().add(caller="fit", callee="fit"),
        )
        return router.add(
            splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split")
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

    def _route(self, sample_weight: ArrayLike | None, fit_params: Mapping[str, Any]) -> Any:
        """Return the parameters of the estimator's `fit` and of the splitter's `split`."""
        if sklearn.get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
        parameters = dict(fit_params)
        if sample_weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                parameters["sample_weight"] = sample_weight
            else:
                warnings.warn(
                    f"{type(self.estimator).__name__}.fit has no parameter sample_weight: the "
                    "weights are for the calibrator only",
                    RecalibWarning,
                    stacklevel=3,
                )
        return Bunch(estimator=Bunch(fit=parameters), splitter=Bunch(split={}))

    def _splits(self, X: Any, y: Any, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the training and test rows of each fold."""
        names, counts = np.unique(y, return_counts=True)
        if len(names) < 2:
            raise InputError("y", found=f"{len(names)} class(es)", accepted="at least 2 classes")
        cv = check_cv(self.cv, y, classifier=True)
        folds = cv.get_n_splits(X, y, **parameters)
        rarest = int(counts.argmin())
        if counts[rarest] < folds:
            raise InputError(
                "y",
                found=f"{counts[rarest]} rows of class {names.tolist()[rarest]!r}",
                accepted=f"at least {folds}, the number of folds `cv`",
            )
        return list(cv.split(X, y, **parameters))
