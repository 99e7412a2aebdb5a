"""The parts of the top label's Brier score add up to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import brier_score_loss

from recalib.metrics import METRICS, BinState, Predictions
from recalib.metrics.brier_decomposition import within_bins
from tests.metrics.rows import rows
from tests.metrics.strategies import Case, bins, coarse


def parts(predictions: Predictions, bins: int) -> tuple[float, float, float, float]:
    state = BinState(bins)
    state.add(predictions)
    names = ("brier_reliability", "brier_resolution", "brier_uncertainty")
    reliability, resolution, uncertainty = (
        METRICS[name](bins).estimate(state).value for name in names
    )
    return reliability, resolution, uncertainty, within_bins(state)


@given(coarse(), bins)
def test_the_parts_add_up_to_the_score(case: Case, bins: int) -> None:
    predictions = Predictions.from_probabilities(*case)
    reliability, resolution, uncertainty, within = parts(predictions, bins)
    score = np.mean((predictions.confidences - predictions.correct) ** 2)
    assert reliability - resolution + uncertainty + within == pytest.approx(score, abs=1e-12)


def test_the_score_is_scikit_learns_of_the_binary_event() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.51, 1, 500)
    y = rng.random(500) < p - 0.1
    reliability, resolution, uncertainty, within = parts(rows(p, y), 15)
    expected = brier_score_loss(y, p)
    assert reliability - resolution + uncertainty + within == pytest.approx(expected, rel=1e-12)


def test_nothing_is_within_bins_of_one_confidence() -> None:
    p = np.repeat([0.55, 0.75, 0.95], [10, 20, 30])
    assert parts(rows(p, np.arange(60) % 3 > 0), 10)[3] == pytest.approx(0, abs=1e-15)


def test_a_case_by_hand() -> None:
    """0.6 with half of it right, 0.9 with all: gaps −0.1 and 0.1, accuracies 0.25 from 0.75."""
    found = parts(rows([0.6, 0.6, 0.9, 0.9], [True, False, True, True]), 10)
    assert found == pytest.approx((0.01, 0.0625, 0.1875, 0), abs=1e-12)
