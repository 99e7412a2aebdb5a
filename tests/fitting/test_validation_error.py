"""A version whose error on its own validation data exceeds the tolerance is named."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from recalib.core.card import Card, MetricValue
from recalib.fitting.cross_validation import compare_by_cross_validation
from recalib.fitting.fit import fit
from recalib.fitting.validation_error import (
    calibration_error,
    validation_error,
    validation_warnings,
)
from tests.fitting.conftest import draw, draw_with_wrong_labels
from tests.fitting.test_cross_validation import candidate


def card_of(value: float, low: float) -> Card:
    card = fit(*draw(50, 3, 1.0), measure=True).card
    error = MetricValue(value, low, 2 * value - low)
    return msgspec.structs.replace(card, calibration_error=error)


def warnings(card: Card | None, tolerance: float, objective: float) -> list[str]:
    return validation_warnings(card, "version 3", tolerance=tolerance, objective=objective)


def test_error_is_near_the_truth() -> None:
    """Confidence .8 and accuracy .7 in one half, .9 and .9 in the other: CE is √(.1²/2)."""
    rng = np.random.default_rng(0)
    confidences = np.repeat([0.8, 0.9], 50_000)
    error = calibration_error(confidences, rng.random(100_000) < np.repeat([0.7, 0.9], 50_000))
    assert error is not None
    assert error.value == pytest.approx(0.1 / np.sqrt(2), abs=0.005)
    assert error.low is not None
    assert error.low < 0.0707 < (error.high or 0)


def test_one_row_has_no_error() -> None:
    assert calibration_error(np.array([0.5]), np.array([True])) is None


def test_cross_validated_error_is_preferred() -> None:
    """Histogram binning has hardly any error on the rows that it was fitted on."""
    logits, labels = draw(300, 4, 2.0)
    card = fit(logits, labels, "histogram_binning", target="one_vs_rest", measure=True).card
    selection = compare_by_cross_validation(
        candidate("histogram_binning"), candidate("identity"), logits, labels
    )
    assert selection.calibration_error is not None
    complete = msgspec.structs.replace(card, selection=selection)
    assert validation_error(card) == card.calibration_error
    assert validation_error(complete) == selection.calibration_error


def test_error_above_the_tolerance_is_named_with_advice() -> None:
    (text,) = warnings(card_of(0.044, 0.03), 0.02, 0.05)
    assert "version 3 (temperature) on its own validation data is 0.044" in text
    assert "although it meets the objective of 0.05" in text
    assert "`auto`, or set a tolerance above 0.044" in text


def test_error_above_the_objective_needs_another_map() -> None:
    (text,) = warnings(card_of(0.1, 0.07), 0.02, 0.05)
    assert text.endswith("fit another map, or `auto`")


@pytest.mark.parametrize("card", [None, card_of(0.044, 0.015), card_of(0.01, 0.0)])
def test_uncertain_error_gives_no_warning(card: Card | None) -> None:
    assert warnings(card, 0.02, 0.05) == []


def test_card_without_error_gives_no_warning() -> None:
    card = msgspec.structs.replace(card_of(0.1, 0.09), calibration_error=None)
    assert warnings(card, 0.02, 0.05) == []


def test_tolerance_above_the_objective_is_named() -> None:
    (text,) = warnings(None, 0.1, 0.05)
    assert "never fresh and never becomes stale" in text
    assert "a tolerance of at most 0.05" in text


@pytest.mark.slow
def test_temperature_that_cannot_fit_is_named_and_a_richer_map_is_not() -> None:
    rows = draw_with_wrong_labels(2_000, 4, 0.3)
    assert warnings(fit(*rows, measure=True).card, 0.02, 0.05)
    assert not warnings(fit(*rows, map="auto", measure=True).card, 0.02, 0.05)
