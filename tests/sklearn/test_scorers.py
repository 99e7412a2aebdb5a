"""Metrics as scorers."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate

import recalib
from recalib.errors import InputError
from recalib.sklearn import make_scorer


def test_scores_equal_those_of_scikit_learn() -> None:
    """Errors are negated, others not; each fold is scored once."""
    x, y = make_classification(300, 6, n_informative=4, n_classes=3, random_state=0)
    names = np.array(["c", "a", "b"])[y]
    model = LogisticRegression()
    scores = cross_validate(model, x, names, scoring=make_scorer(["accuracy", "nll", "ece"]))
    for ours, theirs in [("test_accuracy", "accuracy"), ("test_neg_nll", "neg_log_loss")]:
        np.testing.assert_allclose(scores[ours], cross_val_score(model, x, names, scoring=theirs))
    assert (scores["test_neg_ece"] < 0).all()


def test_fold_without_a_class_is_scored() -> None:
    """The classes are those of the classifier, not those of the rows."""
    x, y = make_classification(300, 6, n_informative=4, n_classes=3, random_state=0)
    names = np.array(["c", "a", "b"])[y]
    model = LogisticRegression().fit(x, names)
    rows = names != "a"
    expected = log_loss(names[rows], model.predict_proba(x[rows]), labels=model.classes_)
    assert make_scorer("nll")(model, x[rows], names[rows]) == pytest.approx(-expected)


def test_metric_for_which_no_row_counts_is_an_error() -> None:
    x, y = make_classification(300, 6, n_informative=4, random_state=0)
    model = LogisticRegression().fit(x, y)
    with pytest.raises(InputError, match="y: found no row for roc_auc"):
        make_scorer(["roc_auc", "nll"])(model, x[y == 1], y[y == 1])


def test_search_maximises_a_score() -> None:
    x, y = make_classification(300, 6, n_informative=4, random_state=0)
    options = {"C": [1e-6, 1.0]}
    search = GridSearchCV(LogisticRegression(), options, scoring=make_scorer("brier")).fit(x, y)
    assert search.best_params_ == {"C": 1.0}
    several = make_scorer(["brier", "ece"], bins=5)
    search = GridSearchCV(LogisticRegression(), options, scoring=several, refit="neg_brier")
    assert search.fit(x, y).best_params_ == {"C": 1.0}
    scored = several(search.best_estimator_, x, y)
    expected = recalib.evaluate(y, search.predict_proba(x), metrics=["brier", "ece"], bins=5)
    assert scored == {f"neg_{name}": -value for name, value in expected.items()}


def test_weights_are_routed_to_scorers() -> None:
    x, y = make_classification(300, 6, n_informative=4, random_state=0)
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 300)
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression().set_fit_request(sample_weight=False)
        scores = [
            cross_validate(model, x, y, scoring={"nll": scorer}, params={"sample_weight": weights})[
                "test_nll"
            ]
            for scorer in (
                make_scorer("nll").set_score_request(sample_weight=True),
                get_scorer("neg_log_loss").set_score_request(sample_weight=True),
            )
        ]
    np.testing.assert_allclose(*scores)


def test_unknown_metric_is_rejected() -> None:
    with pytest.raises(InputError, match="did you mean nll"):
        make_scorer("log_loss")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("recalib.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match=r"accepted: pip install 'recalib\[sklearn\]'"):
        importlib.import_module("recalib.sklearn")
