"""The metrics as scorers of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest

from recalib.core.options import check_names
from recalib.metrics import METRICS
from recalib.metrics.base import UndefinedMetricError
from recalib.metrics.evaluate import evaluate
from recalib.sklearn.scores import class_numbers


class Scorer:
    """A function of a fitted classifier, rows and their classes, as `make_scorer` returns it.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from recalib.sklearn import make_scorer
    >>> model = GaussianNB().fit(logits, labels)
    >>> make_scorer("accuracy")(model, new_logits, new_labels) > 0.5
    True
    """

    def __init__(self, metrics: str | Sequence[str], bins: int) -> None:
        self.metrics = metrics
        self.bins = bins
        self.set_score_request(sample_weight=None)
        self._names = [metrics] if isinstance(metrics, str) else list(metrics)
        check_names("metrics", self._names, METRICS)

    def __repr__(self) -> str:
        return f"make_scorer({self.metrics!r}, bins={self.bins})"

    def __call__(
        self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float | dict[str, float]:
        """Return the score of `estimator.predict_proba(X)`, or each score by its name.

        Raises
        ------
        InputError: a class in `y` that is not in `estimator.classes_`; a metric that is not defined
            for the classes, for which no row counts, or that has no weighted form, with weights.
        """
        estimates = evaluate(
            class_numbers(y, np.asarray(estimator.classes_)),
            probabilities=estimator.predict_proba(X),
            sample_weight=sample_weight,
            metrics=self._names,
            bins=self.bins,
        )
        if missing := [name for name in self._names if name not in estimates]:
            raise UndefinedMetricError(
                "y", found=f"no row for {missing[0]}", accepted="one or more"
            )
        scores = {}
        for name, estimate in estimates.items():
            if METRICS[name].better == "lower":
                scores[f"neg_{name}"] = -estimate.value
            else:
                scores[name] = estimate.value
        return next(iter(scores.values())) if isinstance(self.metrics, str) else scores

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """Set whether `cross_validate` and others pass weights, with metadata routing."""
        self._request = MetadataRequest(owner=self)
        self._request.score.add_request(param="sample_weight", alias=sample_weight)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the request of `set_score_request`."""
        return self._request


def make_scorer(metrics: str | Sequence[str], *, bins: int = 15) -> Scorer:
    """Return metrics as `scoring` of `cross_validate`, `GridSearchCV` and similar functions.

    Errors, and other metrics that are better when lower, are negated, because scikit-learn
    maximises scores. The classes of the columns are those of the classifier, so a fold need not
    have all.

    Parameters
    ----------
    metrics: a name in `recalib.metrics.METRICS`, for one score; or several names, for scores by
        name: `neg_ece` for an error, `accuracy` for another metric.
    bins: the number of bins of binned metrics.

    Raises
    ------
    InputError: an unknown metric.

    Examples
    --------
    >>> from sklearn.model_selection import cross_validate
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from recalib.sklearn import make_scorer
    >>> scoring = make_scorer(["accuracy", "ece"])
    >>> scores = cross_validate(GaussianNB(), logits, labels, scoring=scoring)
    >>> scores["test_neg_ece"].shape
    (5,)
    """
    return Scorer(metrics, bins)
