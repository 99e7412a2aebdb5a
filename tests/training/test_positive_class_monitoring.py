"""Versions of two classes are monitored by P(y = 1); those of earlier cards by the confidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recalib.core.card import ConfidenceHistogram
from recalib.registry import Model, MonitorRow, Registry
from tests.training.watched import WATCHING, a_champion, serve
from training.monitoring_job import watch

pytestmark = pytest.mark.sqlite_only


def _too_high(probabilities: np.ndarray) -> np.ndarray:
    """Draw labels for which P(y = 1) is too high, and the confidence right on average.

    Where class 1 is predicted, accuracy is below the confidence c by .6 (1 - c), and as much above
    where class 0 is.
    """
    p = probabilities[:, 1].astype(np.float64)
    draws = np.random.default_rng(3).random(len(p))
    return (draws < p - 0.6 * np.minimum(p, 1 - p)).astype(np.int64)


def _status(registry: Registry, model: Model) -> MonitorRow:
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    return row


def test_shifted_base_rate_of_served_predictions_is_found(registry: Registry) -> None:
    """The ids have the confidence and the predicted class, from which P(y = 1) follows."""
    model = a_champion(registry, classes=2)
    serve(registry, model, ago=1_000, temperature=3.0, rows=3_000, label=_too_high)
    row = _status(registry, model)
    evidence = row.status["evidence"]
    assert (row.status["state"], evidence["target"]) == ("stale", "positive_class")
    assert "the frequency of class 1 is not within 2.0% of P(y = 1)" in row.status["reason"]
    assert evidence["confidence"] - evidence["accuracy"] > 0.05
    # All predictions are in the bins of the traffic, which has the quantiles of the card.
    assert evidence["traffic"] == evidence["n"]
    assert evidence["psi"] < evidence["psi_threshold"]


def test_calibrated_predictions_of_two_classes_are_fresh(registry: Registry) -> None:
    model = a_champion(registry, replace(WATCHING, window_labels=4_000), classes=2)
    serve(registry, model, ago=1_000, temperature=3.0, rows=4_000)
    status = _status(registry, model).status
    assert (status["state"], status["evidence"]["target"]) == ("fresh", "positive_class")


def test_version_with_an_earlier_card_is_monitored_by_the_confidence(registry: Registry) -> None:
    histogram = ConfidenceHistogram((0.6, 0.7, 0.8, 0.9), (1,) * 5)
    model = a_champion(registry, classes=2, histogram=histogram)
    serve(registry, model, ago=1_000, temperature=3.0, rows=3_000, label=_too_high)
    row = _status(registry, model)
    evidence = row.status["evidence"]
    assert evidence["target"] == "top_label"
    assert row.status["state"] != "stale"
    assert evidence["confidence"] > 0.5
    assert WATCHING.tolerance > abs(evidence["confidence"] - evidence["accuracy"])
