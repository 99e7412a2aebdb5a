"""The reference confidence histogram of a card."""

from __future__ import annotations

import numpy as np
import pytest

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.drift import confidence_shift
from recalib.drift.calibration_sums import check_edges, left_closed_bins
from recalib.drift.reference_histogram import (
    reference_edges,
    reference_histogram,
    reference_target,
)
from recalib.fitting.fit import fit
from tests.fitting.conftest import draw


def test_bins_have_about_equal_counts() -> None:
    confidences = np.random.default_rng(0).beta(8, 2, 3_000)
    bins = reference_histogram(confidences)
    check_edges(bins.edges)
    assert len(bins.counts) == len(bins.edges) + 1 == 15
    assert max(bins.counts) - min(bins.counts) <= 2
    assert sum(bins.counts) == 3_000


def test_float32_rounding_does_not_change_bins() -> None:
    """Histogram binning puts all rows on edges; float32 rounding moves them off."""
    values = np.random.default_rng(1).choice([0.1, 0.3, 0.6, 0.7, 0.9, 1.0], 5_000)
    bins = reference_histogram(values)
    served = left_closed_bins(np.array(bins.edges), values.astype(np.float32))
    assert np.bincount(served).tolist() == list(bins.counts)
    assert len(bins.counts) == 6


@pytest.mark.parametrize("values", [np.full(9, 1.0), np.full(9, 1e-9), np.array([0.5])])
def test_equal_confidences_make_one_bin(values: np.ndarray) -> None:
    bins = reference_histogram(values)
    assert bins.counts == (len(values),)
    assert bins.edges == ()


def test_a_fit_stores_its_histogram_and_its_own_rows_show_no_shift() -> None:
    logits, labels = draw(600, 4, 3.0)
    calibrator = fit(logits, labels)
    histogram = calibrator.card.confidences
    assert histogram is not None
    assert sum(histogram.counts) == 600
    served = calibrator.predict_float32(logits.astype(np.float32)).max(axis=1)
    counts = np.bincount(
        left_closed_bins(np.array(histogram.edges), served), minlength=len(histogram.counts)
    )
    assert not confidence_shift(np.array(histogram.counts), counts).shifted


def test_fit_of_two_classes_stores_the_positive_class() -> None:
    """With and without metrics, and from files: the counts are those of P(y = 1)."""
    logits, labels = draw(600, 2, 3.0)
    for measure in (False, True):
        card = fit(logits, labels, measure=measure).card
        assert card.confidences is not None
        assert reference_target(card) == "positive_class"
        p = fit(logits, labels).predict_float64(logits)[:, 1]
        counts = np.bincount(left_closed_bins(reference_edges(card), p)).tolist()
        assert counts == list(card.confidences.counts)
        assert card.confidences.edges[0] < 0.5


def test_card_without_target_is_of_the_confidence() -> None:
    card = fit(*draw(600, 2, 3.0)).card
    fields = card.to_dict()
    del fields["confidences"]["target"]
    assert reference_target(convert(fields, Card)) == "top_label"
