"""Thresholds on P(y = 1) in the card of two classes."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics

import recalib
import recalib.scale
from recalib.core.card import Card
from recalib.fitting.thresholds import describe_thresholds
from tests.maps.test_two_classes import shifted_rows

#: Fits of shifted rows warn of what they leave, which is not the subject here.
pytestmark = pytest.mark.filterwarnings("ignore::recalib.errors.RecalibWarning")


@pytest.mark.parametrize("name", ["beta", "vector", "quadratic", "isotonic", "temperature"])
def test_new_threshold_predicts_what_one_half_predicted(name: str) -> None:
    """Recall and precision are those of the classifier before, by scikit-learn, with weights."""
    odds, labels, _ = shifted_rows(2000)
    weights = np.random.default_rng(0).random(len(odds)) + 0.5
    calibrator = recalib.fit(odds, labels, name, sample_weight=weights)
    thresholds = Card.from_json(calibrator.card.to_json()).thresholds
    assert thresholds is not None
    p = calibrator.predict(odds)[:, 1]
    for point in (thresholds.half, thresholds.equal):
        predicted = p > point.threshold
        for metric, value in (("recall", point.recall), ("precision", point.precision)):
            score = getattr(sklearn.metrics, f"{metric}_score")
            expected = score(labels, predicted, sample_weight=weights, zero_division=np.nan)
            found = np.nan if value is None else value
            assert found == pytest.approx(expected, rel=1e-12, nan_ok=True), metric
    assert thresholds.half.threshold == 0.5
    if name != "isotonic":  # whose ties are on one side
        np.testing.assert_array_equal(p > thresholds.equal.threshold, odds > 0)
    if name == "beta":
        assert thresholds.equal.recall is not None
        assert thresholds.half.recall is not None
        assert thresholds.equal.recall > 2 * thresholds.half.recall
        assert "predicts what 0.5 predicted before" in describe_thresholds(calibrator)


def test_bins_have_no_threshold_that_equals_one_half() -> None:
    odds, labels, _ = shifted_rows(2000)
    calibrator = recalib.fit(odds, labels, "histogram_binning")
    assert calibrator.card.thresholds is not None
    p = calibrator.predict(odds)[:, 1]
    assert ((p > calibrator.card.thresholds.equal.threshold) != (odds > 0)).any()
    assert "predicts about what 0.5 predicted before" in describe_thresholds(calibrator)


def test_several_classes_have_no_threshold() -> None:
    logits = np.random.default_rng(0).normal(size=(200, 3))
    labels = (logits + np.random.default_rng(1).normal(size=(200, 3))).argmax(axis=1)
    assert recalib.fit(logits, labels, "vector").card.thresholds is None


def test_a_ratio_of_no_rows_is_absent() -> None:
    """No row is above one half: precision has no value, recall is 0."""
    rng = np.random.default_rng(0)
    odds, labels = rng.normal(-4, 0.1, 500), (rng.random(500) < 0.02).astype(int)
    thresholds = recalib.fit(odds, labels, "beta").card.thresholds
    assert thresholds is not None
    assert thresholds.half.precision is None
    assert thresholds.half.recall == 0


def test_fit_to_files_has_the_same_thresholds(tmp_path) -> None:
    odds, labels, _ = shifted_rows(1000)
    logits = np.stack([0 * odds, odds], axis=1)
    for i, rows in enumerate(np.split(np.arange(1000), 2)):
        np.savez(tmp_path / f"{i}.npz", logits=logits[rows], labels=labels[rows])
    of_files = recalib.scale.fit(str(tmp_path), "quadratic").card.thresholds
    of_arrays = recalib.fit(logits, labels, "quadratic").card.thresholds
    assert of_files is not None
    assert of_arrays is not None
    for a, b in ((of_files.half, of_arrays.half), (of_files.equal, of_arrays.equal)):
        assert a.threshold == pytest.approx(b.threshold, rel=1e-6)
        assert (a.recall, a.precision) == pytest.approx((b.recall, b.precision))
