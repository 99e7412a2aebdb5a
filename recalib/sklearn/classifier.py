"""A classifier with a calibrator behind its scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import numpy as np
import sklearn
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from recalib.core.arrays import WeightKind
from recalib.errors import InputError, RecalibWarning
from recalib.fitting.fit_card import show_warnings
from recalib.sklearn.folds import CalibratedFold, average, fit_fold, rows_with_weight
from recalib.sklearn.scores import ScoreKind, ScoreMethod, fit_calibrator, score_method


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are calibrated by cross-validation.

    As in `sklearn.calibration.CalibratedClassifierCV`, `fit` fits a copy of the estimator to all
    folds but one, and a calibrator to its scores of that fold, for each fold; probabilities are the
    mean over the folds. With `ensemble=False` it fits one calibrator to the scores of all folds,
    and the estimator to all rows. A fitted estimator is not changed, with `cv="prefit"` or as a
    `FrozenEstimator`: all rows are for the calibrator, and the estimator must have been fitted to
    other rows.

    Parameters
    ----------
    estimator: a classifier with `decision_function` or `predict_proba`.
    map: a name in `recalib.maps.MAPS`, or `auto`, as in `recalib.fit`.
    objective: a name in `recalib.objectives.OBJECTIVES`.
    options: options of the map and the objective by name.
    cv: the number of stratified folds, a splitter, pairs of training and test rows, which test each
        row once for one calibrator, or `prefit`.
    ensemble: whether there is a calibrator for each fold. `auto` is True, but for a
        `FrozenEstimator` and `prefit`.
    response_method: the scores to calibrate. `decision_function` are logits, or the log-odds of
        the second of two classes; `predict_proba` are probabilities. `auto` takes the first that
        the estimator has.
    n_jobs: the number of processes that fit the folds, as in `cross_val_predict`.
    weight_kind: `survey` or `counts`, what weights are to the calibrator; see `recalib.fit`.

    Attributes
    ----------
    calibrated_classifiers_: the fitted `estimator` and `calibrator` of each fold; one without
        `ensemble`.
    calibrator_: the `recalib.Calibrator`, without `ensemble`; `calibrator_.save("model.calib")`
        writes it.
    estimator_: the fitted classifier, without `ensemble`.
    classes_: (K,), the classes in the order of the columns.
    response_method_: the method of the estimator whose values the calibrator takes.
    n_features_in_, feature_names_in_: those of the estimator, if it has them.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from recalib.sklearn import CalibratedClassifier
    >>> model = CalibratedClassifier(GaussianNB(), map="temperature").fit(logits, labels)
    >>> model.predict_proba(new_logits).shape
    (400, 3)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        map: str = "auto",
        objective: str = "nll",
        options: Mapping[str, Any] | None = None,
        cv: int | Literal["prefit"] | Iterable[Any] | Any = 5,
        ensemble: bool | Literal["auto"] = "auto",
        response_method: ScoreMethod = "auto",
        n_jobs: int | None = None,
        weight_kind: WeightKind = "survey",
    ) -> None:
        self.estimator = estimator
        self.map = map
        self.objective = objective
        self.options = options
        self.cv = cv
        self.ensemble = ensemble
        self.response_method = response_method
        self.n_jobs = n_jobs
        self.weight_kind = weight_kind

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
        X, labels = indexable(X, column_or_1d(y, warn=True))
        if sample_weight is not None and self._has_free_folds:
            X, labels, sample_weight, fit_params = rows_with_weight(
                X, labels, sample_weight, fit_params
            )
        routed = self._route(sample_weight, fit_params)
        self.response_method_, kind = score_method(self.estimator, self.response_method)
        calibration: dict[str, Any] = {
            "map": self.map, "objective": self.objective, "options": self.options,
            "weight_kind": self.weight_kind,
        }  # fmt: skip
        if self._is_ensemble():
            self.calibrated_classifiers_ = self._fit_folds(
                X, labels, sample_weight, routed, kind, calibration
            )
        else:
            self.estimator_, scores = self._fit_estimator(X, labels, routed)
            self.calibrator_ = fit_calibrator(
                scores, labels, sample_weight, classes=self.classes_, kind=kind, **calibration
            )
            if self.calibrator_.card.sets is not None and not self._is_prefit:
                thresholds = replace(self.calibrator_.card.sets, finite_sample=False)
                self.calibrator_ = self.calibrator_.with_sets(thresholds)
            self.calibrated_classifiers_ = [
                CalibratedFold(
                    self.estimator_, self.calibrator_, self.response_method_, self.classes_
                )
            ]
        first = self.calibrated_classifiers_[0].estimator
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))
        show_warnings(
            *(fold.calibrator.card for fold in self.calibrated_classifiers_), stacklevel=3
        )
        return self

    @property
    def _has_free_folds(self) -> bool:
        """Whether folds are drawn from the rows; pairs of rows refer to all of them."""
        return self.cv == "prefit" or isinstance(self.cv, int) or hasattr(self.cv, "split")

    @property
    def _is_prefit(self) -> bool:
        return self.cv == "prefit" or isinstance(self.estimator, FrozenEstimator)

    def _is_ensemble(self) -> bool:
        if self.ensemble == "auto":
            return not self._is_prefit
        if self.ensemble and self.cv == "prefit":
            raise InputError("ensemble", found="True with cv='prefit'", accepted="False, or folds")
        return bool(self.ensemble)

    def _fit_folds(
        self,
        X: Any,
        y: NDArray[Any],
        sample_weight: Any,
        routed: Bunch,
        kind: ScoreKind,
        calibration: dict[str, Any],
    ) -> list[CalibratedFold]:
        """Return a calibrated classifier of each fold."""
        self.classes_ = LabelEncoder().fit(y).classes_
        weights = None if sample_weight is None else np.asarray(sample_weight)
        return Parallel(n_jobs=self.n_jobs)(
            delayed(fit_fold)(
                self.estimator, X, y, weights, split, routed.estimator.fit,
                self.response_method_, kind, calibration,
            )
            for split in self._splits(X, y, routed.splitter.split)
        )  # fmt: skip

    def _fit_estimator(self, X: Any, y: NDArray[Any], routed: Bunch) -> tuple[Any, Any]:
        """Return the classifier of all rows, and the scores of rows that it was not fitted to."""
        method = self.response_method_
        if self._is_prefit:
            check_is_fitted(self.estimator)
            self.classes_ = np.asarray(self.estimator.classes_)
            return self.estimator, getattr(self.estimator, method)(X)
        self.classes_ = LabelEncoder().fit(y).classes_
        splits = self._splits(X, y, routed.splitter.split)
        scores = cross_val_predict(
            clone(self.estimator), X, y, cv=splits, method=method, n_jobs=self.n_jobs,
            params=routed.estimator.fit,
        )  # fmt: skip
        return clone(self.estimator).fit(X, y, **routed.estimator.fit), scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, (N, K), in the order of `classes_`."""
        check_is_fitted(self)
        return average(self.calibrated_classifiers_, X, self.classes_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest calibrated probability, (N,)."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Return whether each class is in the prediction set of a row, (N, K).

        The calibrator has thresholds with `ensemble=False` or `prefit`, and `options` such as
        `{"sets": "lac", "coverage": 0.9}`. With `prefit` the promise of `recalib.fit` holds. Other
        thresholds are of scores out of fold, and the coverage is approximate.

        Raises
        ------
        InputError: an ensemble, or a calibrator without thresholds.
        """
        fold = self._only_fold()
        return fold.calibrator.predict_set(fold.scores(X))

    def predict_interval(self, X: Any) -> NDArray[np.float64]:
        """Return the Venn-Abers interval [p0, p1] of each probability, (N, K, 2).

        The map is `venn_abers`, with `ensemble=False` or `prefit`; see
        `recalib.Calibrator.predict_interval`.

        Raises
        ------
        InputError: an ensemble, or another map.
        """
        fold = self._only_fold()
        return fold.calibrator.predict_interval(fold.scores(X))

    def _only_fold(self) -> CalibratedFold:
        check_is_fitted(self)
        if (count := len(self.calibrated_classifiers_)) > 1:
            accepted = "ensemble=False, for sets and intervals: those of folds have no mean"
            raise InputError("ensemble", found=f"{count} calibrators", accepted=accepted)
        return self.calibrated_classifiers_[0]

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
