"""The transformer of scores."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import recalib
from recalib.errors import RecalibWarning
from recalib.sklearn import Calibrator


def scores(classes: int = 3) -> tuple[Any, Any]:
    """Return overconfident logits (N, K) and the positions of their classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 400)
    return 3 * np.eye(classes)[labels] + 4 * rng.normal(size=(400, classes)), labels


def test_transformer_equals_fit_and_predict() -> None:
    z, y = scores()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    expected = recalib.fit(z, y, map="vector", sample_weight=weights)
    model = Calibrator(map="vector")
    result = model.fit_transform(z, y, sample_weight=weights)
    np.testing.assert_array_equal(result, expected.predict(z))
    np.testing.assert_array_equal(
        model.calibrator_.parameters["scale"], expected.parameters["scale"]
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(z), result)
    assert not hasattr(clone(model), "calibrator_")


def test_probabilities_are_taken_as_such() -> None:
    z, y = scores()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    from_logits = Calibrator(map="temperature").fit_transform(z, y)
    from_shares = Calibrator(map="temperature", input="probabilities").fit_transform(p, y)
    np.testing.assert_allclose(from_shares, from_logits, rtol=1e-7)


def test_scores_of_two_classes_have_one_column() -> None:
    z, y = scores(2)
    odds = z[:, 1] - z[:, 0]
    expected = Calibrator(map="temperature").fit_transform(z, y)
    for column in (odds, odds[:, None]):
        result = Calibrator(map="temperature").fit(column, y).transform(column)
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_data_frames_keep_names_and_index() -> None:
    """Columns with the names of the classes are in any order."""
    z, y = scores()
    names = np.array(["wolf", "cat", "dog"])
    frame = pd.DataFrame(z, columns=names, index=range(7, 407))
    model = Calibrator(map="temperature").set_output(transform="pandas").fit(frame, names[y])
    result = model.transform(frame)
    assert result.columns.tolist() == model.classes_.tolist() == ["wolf", "cat", "dog"]
    assert result.index.tolist() == list(range(7, 407))
    np.testing.assert_array_equal(result, recalib.fit(z, y, map="temperature").predict(z))


def test_columns_are_as_many_as_classes() -> None:
    z, y = scores()
    message = r"X: found 2 feature\(s\) for 3 class\(es\) in y; accepted: one for each class"
    with pytest.raises(ValueError, match=message):
        Calibrator().fit(z[:, :2], y)
    with pytest.raises(ValueError, match="X has 2 features, but Calibrator is expecting 3"):
        Calibrator(map="temperature").fit(z, y).transform(z[:, :2])


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_checks_of_any_number_of_features_are_skipped() -> None:
    """`test_estimator_checks` has them, behind a projection."""
    assert [check["status"] for check in check_estimator(Calibrator())] == ["passed"]


def test_probabilities_without_input_are_named() -> None:
    """One column might be log-odds and warns; rows that sum to 1 are refused."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(size=(100, 1))))
    y = rng.random(100) < p[:, 0]
    with pytest.warns(RecalibWarning, match="logits: .* write input=.probabilities., otherwise"):
        Calibrator(map="temperature").fit(p, y)
    rows = np.hstack([1 - p, p])
    with pytest.raises(ValueError, match=r"sums to 1; accepted: .* write input=.probabilities."):
        Calibrator(map="temperature").fit(rows, y)
    for scores in (p, rows):
        Calibrator(map="temperature", input="probabilities").fit(scores, y)
