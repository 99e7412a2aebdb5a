"""Thresholds that follow labelled rows."""

from __future__ import annotations

import numpy as np
import pytest

import recalib
from recalib.calibrator import Calibrator
from recalib.errors import InputError
from recalib.sets import SetOptions
from tests.fitting.conftest import draw


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    return recalib.fit(*draw(2_000, 6, 1.5), "temperature", sets="raps", coverage=0.9)


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_coverage_over_time_is_within_the_bound_under_drift(
    calibrator: Calibrator, method: str
) -> None:
    """A third is easy, and half is noise; each row has the thresholds before it."""
    (logits, labels), rate, rows = draw(3_000, 6, 1.5, seed=3), 0.02, 3_000
    labels[:1_000] = logits[:1_000].argmax(axis=1)
    labels[1_500:] = np.random.default_rng(0).integers(0, 6, 1_500)
    adaptive = calibrator.fit_sets(*draw(500, 6, 1.5, seed=4), method)  # type: ignore[arg-type]
    covered, fixed = [], adaptive.predict_set(logits)[np.arange(rows), labels]
    for row, label in zip(logits[:, None], labels, strict=True):
        covered.append(adaptive.predict_set(row)[0, label])
        adaptive = adaptive.adapt_sets(row, [label], rate=rate)
    bound = (1.0 + 0.01 + rate) / (rate * rows)
    assert np.mean(covered) > 0.9 - bound
    if method == "lac":  # others always have the most probable class
        assert np.mean(covered) < 0.9 + bound
    assert fixed.mean() < np.mean(covered)
    assert adaptive.card.sets is not None
    assert adaptive.card.sets.adapted == rows


def test_rows_at_once_are_rows_in_turn(calibrator: Calibrator) -> None:
    logits, labels = draw(50, 6, 1.5, seed=5)
    one = calibrator
    for row, label in zip(logits[:, None], labels, strict=True):
        one = one.adapt_sets(row, [label])
    assert calibrator.adapt_sets(logits, labels).card.sets == one.card.sets


def test_thresholds_by_class_move_alone() -> None:
    calibrator = recalib.fit(
        *draw(2_000, 3, 1.5), "temperature", sets=SetOptions(method="lac", by="class")
    )
    logits = draw(20, 3, 1.5, seed=6)[0]
    before, after = (
        np.array(found.card.sets.thresholds)  # type: ignore[union-attr]
        for found in (calibrator, calibrator.adapt_sets(logits, np.ones(20, int)))
    )
    assert (before != after).tolist() == [False, True, False]


def test_rates_and_calibrators_that_cannot_adapt_are_refused(calibrator: Calibrator) -> None:
    logits, labels = draw(50, 6, 1.5)
    with pytest.raises(InputError, match="rate: found 0; accepted: a number above 0"):
        calibrator.adapt_sets(logits, labels, rate=0)
    with pytest.raises(InputError, match="no prediction sets"):
        recalib.fit(logits, labels, "temperature").adapt_sets(logits, labels)
