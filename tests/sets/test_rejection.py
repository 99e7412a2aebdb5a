"""Rejection below a confidence: the test of each threshold, and the promise over draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import recalib
from recalib.errors import InputError
from recalib.sets.rejection import GRID, STARTS, rejection_threshold
from tests.fitting.conftest import draw


def draw_rows(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return confidences, and whether rows are right: less often than the confidence says."""
    confidence = rng.beta(3, 1, rows)
    return confidence, rng.random(rows) < confidence**1.5


def true_risk(threshold: float) -> float:
    """Return P(wrong | confidence ≥ threshold) of `draw_rows`, by the integral of the density."""
    accepted = 1 - threshold**3
    right = 3 / 4.5 * (1 - threshold**4.5)
    return 1 - right / accepted


def test_thresholds_are_those_of_a_loop_of_exact_tests() -> None:
    for seed in range(20):
        confidence, correct = draw_rows(800, np.random.default_rng(seed))
        succeeded = []
        for start in STARTS:
            for t in GRID[start >= GRID]:
                of_rows = correct[confidence >= t]
                test = scipy.stats.binom.cdf((~of_rows).sum(), len(of_rows), 0.2)
                if test > 0.1 / 4:
                    break
                succeeded.append(t)
        found = rejection_threshold(confidence, correct, 0.2, 0.9)
        assert found.threshold == min(succeeded)
        accepted = confidence >= found.threshold
        assert (found.accepted, found.errors) == (accepted.sum(), (~correct[accepted]).sum())


def test_risk_of_accepted_rows_stays_in_nine_of_ten_draws() -> None:
    """2,000 draws of 500 rows; the share of failures is below .1 by its exact 99% interval."""
    rng = np.random.default_rng(0)
    failures = sum(
        true_risk(rejection_threshold(*draw_rows(500, rng), 0.25, 0.9).threshold) > 0.25
        for _ in range(2000)
    )
    interval = scipy.stats.binomtest(failures, 2000).proportion_ci(0.99)
    assert interval.high < 0.1


def test_more_rows_accept_more_and_reach_the_true_threshold() -> None:
    rng = np.random.default_rng(1)
    thresholds = [
        rejection_threshold(*draw_rows(n, rng), 0.2, 0.9).threshold for n in (500, 200_000)
    ]
    assert thresholds[1] < thresholds[0]
    grid = np.array([t for t in GRID if true_risk(float(t)) <= 0.2])
    assert thresholds[1] == pytest.approx(grid.min(), abs=0.0101)


def test_calibrator_keeps_its_threshold(tmp_path: Any) -> None:
    logits, labels = draw(2000, 4, 1.0)
    calibrator = recalib.fit(logits[:1000], labels[:1000])
    with pytest.raises(InputError, match="found no threshold of rejection"):
        calibrator.is_accepted(logits)
    error = np.mean(calibrator.predict(logits).argmax(axis=1) != labels)
    fitted = calibrator.fit_rejection(logits[1000:], labels[1000:], error / 2)
    fitted.save(tmp_path / "c.calib")
    again = recalib.load(tmp_path / "c.calib")
    assert again.card.rejection == fitted.card.rejection
    accepted = again.is_accepted(logits)
    rejection = again.card.rejection
    assert rejection is not None
    np.testing.assert_array_equal(
        accepted, calibrator.predict(logits).max(axis=1) >= rejection.threshold
    )
    assert accepted[1000:].sum() == rejection.accepted
    assert rejection.errors / rejection.accepted < error / 2


@pytest.mark.parametrize(
    ("risk", "sureness", "text"),
    [
        (0.0, 0.9, "risk: found 0.0; accepted: a number above 0"),
        (0.1, 1.0, "sureness: found 1.0; accepted"),
        (0.001, 0.9, "risk: found 0.001 with sureness 0.9 on 500 rows; accepted: a larger risk"),
    ],
)
def test_bad_requests_are_named(risk: float, sureness: float, text: str) -> None:
    rows = draw_rows(500, np.random.default_rng(0))
    with pytest.raises(InputError, match=text):
        rejection_threshold(*rows, risk, sureness)
