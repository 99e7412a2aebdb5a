"""`CalibratedClassifier` beside scikit-learn's, which is independent code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import recalib
from recalib.errors import RecalibWarning
from recalib.sklearn import CalibratedClassifier

_NAMES = np.array(["wolf", "cat", "dog"])


def rows(classes: int = 3, count: int = 600) -> tuple[Any, Any]:
    """Return features and classes with names that are not in the order of their numbers."""
    x, y = make_classification(
        count, 8, n_informative=5, n_classes=classes, class_sep=0.6, random_state=0
    )
    return x, _NAMES[y]


@pytest.mark.parametrize("ensemble", ["auto", False])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "estimator", [LinearDiscriminantAnalysis(), GaussianNB(priors=None)], ids=["scores", "shares"]
)
def test_temperature_equals_that_of_scikit_learn(
    classes: int, estimator: Any, ensemble: Any
) -> None:
    """Both fit temperatures to out-of-fold scores: logits, or probabilities without them.

    One of all folds, or by default one of each fold, whose probabilities are averaged.

    scikit-learn searches log(1/T) to 64 epsilon, and takes log(p + epsilon) of probabilities.
    """
    x, y = rows(classes)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    theirs = CalibratedClassifierCV(estimator, method="temperature", ensemble=ensemble, cv=5)
    ours = CalibratedClassifier(estimator, map="temperature", cv=5, ensemble=ensemble)
    if isinstance(estimator, LinearDiscriminantAnalysis):  # its `fit` takes no weights
        ours.fit(x, y)
        theirs.fit(x, y)
    else:
        ours.fit(x, y, sample_weight=weights)
        theirs.fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), rtol=0, atol=1e-5)
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    assert ours.predict(x).tolist() == theirs.predict(x).tolist()


@pytest.mark.parametrize(
    ("method", "map", "options", "tolerance"),
    [("sigmoid", "vector", {}, 0.002), ("isotonic", "isotonic", {"target": "one_vs_rest"}, 0.02)],
)
def test_binary_maps_are_close_to_those_of_scikit_learn(
    method: str, map: str, options: dict[str, Any], tolerance: float
) -> None:
    """Platt's targets are smoothed, and our isotonic map is smoothed and interpolated."""
    x, y = rows(2, 4000)
    estimator = FrozenEstimator(LinearDiscriminantAnalysis().fit(x[:1000], y[:1000]))
    ours = CalibratedClassifier(estimator, map=map, options=options).fit(x[1000:], y[1000:])
    theirs = CalibratedClassifierCV(estimator, method=method).fit(x[1000:], y[1000:])
    differences = np.abs(ours.predict_proba(x) - theirs.predict_proba(x))
    assert differences.mean() < tolerance


def test_prefit_and_frozen_estimators_are_calibrated_on_all_rows() -> None:
    x, y = rows()
    fitted = LinearDiscriminantAnalysis().fit(x[:300], y[:300])
    prefit = CalibratedClassifier(fitted, map="temperature", cv="prefit").fit(x[300:], y[300:])
    frozen = CalibratedClassifier(FrozenEstimator(fitted), map="temperature").fit(x[300:], y[300:])
    names = fitted.classes_.tolist()
    direct = recalib.fit(
        fitted.decision_function(x[300:]), [names.index(name) for name in y[300:]], input="logits"
    )
    expected = direct.predict(fitted.decision_function(x), input="logits")
    np.testing.assert_array_equal(prefit.predict_proba(x), expected)
    np.testing.assert_array_equal(frozen.predict_proba(x), expected)
    assert prefit.estimator_ is fitted


def test_prefit_estimator_has_the_classes_that_calibration_rows_lack() -> None:
    x, y = rows()
    fitted = LinearDiscriminantAnalysis().fit(x, y)
    without = y != "dog"
    model = CalibratedClassifier(fitted, map="temperature", cv="prefit")
    with pytest.warns(RecalibWarning, match="1 of 3 classes never occur in the labels: 1") as shown:
        model.fit(x[without], y[without])
    assert shown[0].filename == __file__  # the caller's line
    assert model.predict_proba(x).shape == (len(x), 3)
    with pytest.raises(ValueError, match="y: found the class 'fox'; accepted: cat, dog, wolf"):
        model.fit(x, np.where(y == "dog", "fox", y))


def test_calibrator_is_saved_as_a_file(tmp_path: Path) -> None:
    x, y = rows()
    model = CalibratedClassifier(GaussianNB(), map="vector", ensemble=False).fit(x, y)
    assert model.response_method_ == "predict_proba"
    model.calibrator_.save(tmp_path / "model.calib")
    loaded = recalib.load(tmp_path / "model.calib")
    assert loaded.card.labels == ("cat", "dog", "wolf")
    assert loaded.card.input == "probabilities"
    scores = model.estimator_.predict_proba(x)
    np.testing.assert_array_equal(loaded.predict(scores), model.predict_proba(x))


def test_scores_can_be_chosen() -> None:
    """The decision function of this estimator is the log-odds of its probabilities."""
    x, y = rows(2)
    probabilities = [
        CalibratedClassifier(LinearDiscriminantAnalysis(), map="beta", response_method=method)
        .fit(x, y)
        .predict_proba(x)
        for method in ("decision_function", "predict_proba")
    ]
    np.testing.assert_allclose(*probabilities, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="accepted: a classifier with decision_function"):
        CalibratedClassifier(GaussianNB(), response_method="decision_function").fit(x, y)
    with pytest.raises(ValueError, match="response_method: found 'predict'"):
        CalibratedClassifier(GaussianNB(), response_method="predict").fit(x, y)


def test_model_works_in_pipelines_and_searches() -> None:
    """Clones, nested parameters, data frames and out-of-fold predictions."""
    x, y = rows(count=300)
    frame = pd.DataFrame(x, columns=[f"feature {i}" for i in range(x.shape[1])])
    inner = CalibratedClassifier(
        make_pipeline(StandardScaler(), GaussianNB()), map="temperature", cv=3
    )
    search = GridSearchCV(
        make_pipeline(StandardScaler(), inner),
        {"calibratedclassifier__map": ["identity", "temperature"]},
        cv=2,
    ).fit(frame, y)
    copy = pickle.loads(pickle.dumps(search))
    assert copy.predict(frame).tolist() == search.predict(frame).tolist()
    assert clone(inner.fit(frame, y)).get_params()["map"] == "temperature"
    assert inner.feature_names_in_.tolist() == list(frame.columns)
    held_out = cross_val_predict(inner, frame, y, cv=3, method="predict_proba")
    np.testing.assert_allclose(held_out.sum(axis=1), 1.0)


def test_ensemble_takes_any_splits_and_classes_that_folds_lack() -> None:
    """Rows may be tested twice or never; a class that a fold's estimator lacks has 0 there."""
    x, y = rows(3, 300)
    wolves = np.flatnonzero(y == "wolf")
    others = np.setdiff1d(np.arange(300), wolves)
    splits = [(others[:100], np.arange(150)), (np.arange(0, 300, 2), np.arange(1, 300, 2))]
    model = CalibratedClassifier(GaussianNB(), map="temperature", cv=splits).fit(x, y)
    first, second = model.calibrated_classifiers_
    assert first.classes.tolist() == ["cat", "dog"]
    expected = second.predict_proba(x) / 2
    expected[:, :2] += first.predict_proba(x) / 2
    np.testing.assert_allclose(model.predict_proba(x), expected, rtol=0, atol=1e-12)
    known = np.setdiff1d(np.arange(150), wolves)
    direct = recalib.fit(
        GaussianNB().fit(x[others[:100]], y[others[:100]]).predict_proba(x[known]),
        (y[known] == "dog").astype(int),
        input="probabilities",
    )
    np.testing.assert_array_equal(
        first.calibrator.parameters["temperature"], direct.parameters["temperature"]
    )


def test_rows_of_weight_0_change_no_fold() -> None:
    x, y = rows(3, 300)
    weights = np.random.default_rng(0).uniform(0.5, 2, 300) * (np.arange(300) % 3 > 0)
    used = weights > 0
    for ensemble in (True, False):
        model = CalibratedClassifier(GaussianNB(), map="vector", ensemble=ensemble, cv=3)
        probabilities = clone(model).fit(x, y, sample_weight=weights).predict_proba(x)
        some = clone(model).fit(x[used], y[used], sample_weight=weights[used])
        np.testing.assert_allclose(probabilities, some.predict_proba(x), rtol=0, atol=1e-12)


def test_metadata_is_routed() -> None:
    """Weights go to the calibrator and to an estimator that requests them; groups to the folds."""
    x, y = rows(2, 300)
    groups = np.arange(300) % 7
    weights = np.random.default_rng(2).uniform(0.1, 3.0, 300)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = LogisticRegression().set_fit_request(sample_weight=True)
        model = CalibratedClassifier(estimator, map="temperature", cv=GroupKFold(4), ensemble=False)
        model.fit(x, y, sample_weight=weights, groups=groups)
    folds = list(GroupKFold(4).split(x, y, groups))
    scores = cross_val_predict(
        LogisticRegression(), x, y, cv=folds, method="decision_function",
        params={"sample_weight": weights},
    )  # fmt: skip
    expected = recalib.fit(scores, y == model.classes_[1], input="logits", sample_weight=weights)
    fitted = float(model.calibrator_.parameters["temperature"])
    assert fitted == pytest.approx(float(expected.parameters["temperature"]), rel=1e-9)
    coefficients = LogisticRegression().fit(x, y, sample_weight=weights).coef_
    np.testing.assert_allclose(model.estimator_.coef_, coefficients)


def test_estimator_without_weights_warns() -> None:
    x, y = rows(2, 200)
    with pytest.warns(RecalibWarning, match="the weights are for the calibrator only"):
        CalibratedClassifier(KNeighborsClassifier(), map="temperature").fit(
            x, y, sample_weight=np.ones(200)
        )


def test_invalid_input_is_a_value_error() -> None:
    """`InputError` is one, as scikit-learn expects."""
    x, y = rows(2, 100)
    few = np.where(np.arange(100) < 3, "fox", "cat")
    with pytest.raises(ValueError, match="y: found 3 rows of class 'fox'; accepted: at least 5"):
        CalibratedClassifier(GaussianNB()).fit(x, few)
    with pytest.raises(ValueError, match="ensemble: found True with cv='prefit'"):
        CalibratedClassifier(GaussianNB().fit(x, y), cv="prefit", ensemble=True).fit(x, y)
    with pytest.raises(ValueError, match="map: found 'temprature'; accepted: did you mean"):
        CalibratedClassifier(GaussianNB(), map="temprature").fit(x, y)
    with pytest.raises(ValueError, match=r"options\.smooth: found an unknown option"):
        CalibratedClassifier(GaussianNB(), map="temperature", options={"smooth": 1}).fit(x, y)


def test_doubtful_fit_warns_once_for_all_folds() -> None:
    """What `recalib.fit` says about each fold, with the number of folds that it says it of."""
    x, _ = rows(2, 100)
    separable = np.where(x[:, :1] > 0, 50.0, -50.0)
    labels = (x[:, 0] > 0).astype(int)
    model = CalibratedClassifier(LogisticRegression(), map="temperature", cv=4)
    with pytest.warns(RecalibWarning) as shown:
        model.fit(separable, labels)
    cards = [fold.calibrator.card.fit for fold in model.calibrated_classifiers_]
    expected = {text for card in cards for text in (*card.bounds_reached, *card.warnings)}
    texts = [str(warning.message) for warning in shown]
    assert {text.rpartition(" (in ")[0] for text in texts} == expected
    assert any("temperature at its lower bound" in text for text in texts)
    assert any(text.endswith("(in 4 of 4 folds)") for text in texts)


def test_prediction_sets_are_those_of_the_calibrator() -> None:
    """With a prefit estimator the promise holds; thresholds of folds are approximate."""
    x, y = rows(3, 3000)
    options = {"sets": "lac", "coverage": 0.9}
    fitted = GaussianNB().fit(x[:1000], y[:1000])
    model = CalibratedClassifier(fitted, map="temperature", cv="prefit", options=options)
    sets = model.fit(x[1000:2000], y[1000:2000]).predict_set(x[2000:])
    expected = model.calibrator_.predict_set(fitted.predict_proba(x[2000:]))
    np.testing.assert_array_equal(sets, expected)
    hits = sets[np.arange(1000), np.searchsorted(model.classes_, y[2000:])]
    assert 0.85 < hits.mean() < 0.95
    assert model.calibrator_.card.sets.finite_sample
    model = CalibratedClassifier(
        GaussianNB(), map="temperature", ensemble=False, options=options
    ).fit(x, y)
    assert not model.calibrator_.card.sets.finite_sample
    assert model.predict_set(x[:5]).shape == (5, 3)
    folds = CalibratedClassifier(GaussianNB(), map="temperature", options=options).fit(x, y)
    with pytest.raises(ValueError, match="ensemble: found 5 calibrators; accepted: ensemble=False"):
        folds.predict_set(x)


def test_intervals_are_those_of_the_calibrator() -> None:
    x, y = rows(2)
    model = CalibratedClassifier(LinearDiscriminantAnalysis(), map="venn_abers", ensemble=False)
    intervals = model.fit(x, y).predict_interval(x[:20])
    scores = model.estimator_.decision_function(x[:20])
    np.testing.assert_array_equal(intervals, model.calibrator_.predict_interval(scores))
    assert (intervals[..., 0] <= intervals[..., 1]).all()
    with pytest.raises(ValueError, match="calibrator: found no prediction sets"):
        model.predict_set(x)
