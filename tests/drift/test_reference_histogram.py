"""The histogram of confidences that a card keeps."""

from __future__ import annotations

import numpy as np
import pytest

from recalib.drift import confidence_shift
from recalib.drift.calibration_sums import bin_indices, check_edges
from recalib.drift.reference_histogram import reference_histogram
from recalib.fitting.fit import fit
from tests.fitting.conftest import draw


def test_bins_hold_about_as_many_rows_each() -> None:
    confidences = np.random.default_rng(0).beta(8, 2, 3_000)
    bins = reference_histogram(confidences)
    check_edges(bins.edges)
    assert len(bins.counts) == len(bins.edges) + 1 == 15
    assert max(bins.counts) - min(bins.counts) <= 2
    assert sum(bins.counts) == 3_000


def test_rounding_moves_no_row_of_a_map_of_few_values() -> None:
    """Histogram binning puts all rows on edges; float32 puts them beside."""
    values = np.random.default_rng(1).choice([0.1, 0.3, 0.6, 0.7, 0.9, 1.0], 5_000)
    bins = reference_histogram(values)
    served = bin_indices(np.array(bins.edges), values.astype(np.float32))
    assert np.bincount(served).tolist() == list(bins.counts)
    assert len(bins.counts) == 6


@pytest.mark.parametrize("values", [np.full(9, 1.0), np.full(9, 1e-9), np.array([0.5])])
def test_confidences_that_are_all_alike_are_one_bin(values: np.ndarray) -> None:
    bins = reference_histogram(values)
    assert bins.counts == (len(values),)
    assert bins.edges == ()


def test_a_fit_keeps_them_in_its_card_and_its_own_rows_show_no_shift() -> None:
    logits, labels = draw(600, 4, 3.0)
    calibrator = fit(logits, labels)
    kept = calibrator.card.confidences
    assert kept is not None
    assert sum(kept.counts) == 600
    served = calibrator.predict_float32(logits.astype(np.float32)).max(axis=1)
    counts = np.bincount(bin_indices(np.array(kept.edges), served), minlength=len(kept.counts))
    assert not confidence_shift(np.array(kept.counts), counts).shifted
