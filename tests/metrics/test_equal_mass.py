"""Equal-count bins from a histogram, against sorted rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import recalib.metrics.equal_mass as module
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.equal_mass import EqualMassBins
from recalib.metrics.predictions import ties_of
from recalib.stats.cells import CELLS, cell_edges, cell_indices
from recalib.stats.sums import Cells

Rows = tuple[NDArray[np.float64], NDArray[np.bool_]]


@st.composite
def crowded(draw: st.DrawFn) -> Rows:
    """Confidences that share cells: of few cells, or of distances to 1 over 18 decades."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(1, 400))
    kind = draw(st.sampled_from(["few cells", "decades", "skewed", "ties"]))
    if kind == "few cells":
        p = 0.75 + rng.random(rows) / 600
    elif kind == "decades":
        p = 1 - 10 ** -rng.uniform(0, 18, rows)
    elif kind == "skewed":
        p = rng.beta(30, 0.6, rows)
    else:
        p = rng.integers(0, 8, rows) / 8
    # Errors first, or at low confidence inside a cell: the histogram loses this order.
    correct = p > np.median(p) if draw(st.booleans()) else rng.random(rows) < p
    return p, correct


def streamed(rows: Rows, parts: int = 1) -> Cells:
    total = Cells()
    for p, correct in zip(*(np.array_split(row, parts) for row in rows), strict=True):
        state = Cells()
        state.add(p, correct)
        total = total.merge(state)
    return total


def bins_of_rows(rows: Rows, bins: int) -> EqualMassBins:
    return EqualMassBins(ConfidenceGroups.from_rows(ties_of(rows[0]), rows[1]), bins)


def bins_of_cells(state: Cells, bins: int) -> EqualMassBins:
    return EqualMassBins(ConfidenceGroups.from_cells(state), bins)


def test_cells_match_their_edges() -> None:
    """At edges, next to edges, and at random: against a search; closed towards 1/2."""
    edges = cell_edges()
    assert len(edges) == CELLS + 1
    assert np.all(np.diff(edges) > 0)
    rng = np.random.default_rng(0)
    tiny = 10 ** -rng.uniform(0, 18, 20_000)
    values = [edges, np.nextafter(edges, 0), np.nextafter(edges, 1), tiny, 1 - tiny]
    p = np.concatenate(values)
    below = np.searchsorted(edges, p, side="right") - 1
    above = np.searchsorted(edges, p, side="left") - 1
    np.testing.assert_array_equal(
        cell_indices(p), np.where(p < 0.5, below, np.maximum(above, CELLS // 2))
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_float16_and_float32_confidences_use_the_cells_of_their_values(dtype: type) -> None:
    p = np.random.default_rng(0).random(1000).astype(dtype)
    np.testing.assert_array_equal(cell_indices(p), cell_indices(p.astype(np.float64)))


@pytest.mark.parametrize("order", [1, 2])
@given(rows=crowded(), bins=st.sampled_from([1, 2, 3, 7, 15, 100]))
def test_discretisation_error_is_within_the_bound(rows: Rows, bins: int, order: int) -> None:
    """1e-12 for the rounding of sums."""
    exact = bins_of_rows(rows, bins)
    result = bins_of_cells(streamed(rows), bins)
    np.testing.assert_array_equal(result.sizes, exact.sizes)
    assert exact.error(order) == 0
    assert abs(result.mean(order) - exact.mean(order)) <= result.error(order) + 1e-12


def test_discretisation_bound_is_small() -> None:
    """For 10⁵ rows in 15 bins: a bound of 0.3 percentage points, an error of 0.02."""
    rng = np.random.default_rng(0)
    for p in (rng.beta(30, 0.6, 10**5), 1 - rng.beta(0.3, 3, 10**5), rng.random(10**5)):
        rows = p, rng.random(len(p)) < p
        result = bins_of_cells(streamed(rows), 15)
        assert result.error(1) < 3e-3
        assert result.mean(1) == pytest.approx(bins_of_rows(rows, 15).mean(1), abs=2e-4)


def test_one_confidence_per_cell_is_exact() -> None:
    """One confidence per cell, as with ties: no information is lost."""
    edges = cell_edges()
    p = (edges[1:] + edges[:-1]) / 2
    rows = p, np.random.default_rng(0).random(CELLS) < p
    actual = bins_of_cells(streamed(rows), 15).mean(1)
    assert actual == pytest.approx(bins_of_rows(rows, 15).mean(1), rel=1e-12)


@given(rows=crowded(), parts=st.integers(1, 7), bins=st.sampled_from([1, 15]))
def test_merged_parts_equal_one_state(rows: Rows, parts: int, bins: int) -> None:
    single, merged = streamed(rows), streamed(rows, parts)
    np.testing.assert_array_equal(merged.count, single.count)
    result, expected = (bins_of_cells(value, bins) for value in (merged, single))
    assert result.mean(1) == pytest.approx(expected.mean(1), rel=1e-12, abs=1e-12)
    assert result.mean(2) == pytest.approx(expected.mean(2), rel=1e-12, abs=1e-12)


def test_forty_million_rows_fit_in_one_state() -> None:
    """Float32 confidences of 0.9, all right: every bin's gap is 0.1, in 0.6 megabytes."""
    state, block = Cells(), Cells()
    confidences = np.full(10**6, 0.9, np.float32)
    block.add(confidences, np.ones(len(confidences), bool))
    for _ in range(40):
        state = state.merge(block)
    bins = bins_of_cells(state, 15)
    assert bins.sizes.sum() == 40 * 10**6
    assert bins.mean(1) == pytest.approx(1 - float(np.float32(0.9)), abs=1e-9)
    assert (
        sum(array.nbytes for array in vars(state).values() if isinstance(array, np.ndarray)) < 7e5
    )


@given(crowded(), st.integers(1, 400))
def test_bins_inside_a_group_can_be_joined(rows: Rows, bins: int) -> None:
    """As for more than 65,536 bins: errors and the gaps for intervals are equal."""
    groups = ConfidenceGroups.from_cells(streamed(rows))
    separate = EqualMassBins(groups, bins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_SEPARATE", 0)
        joined = EqualMassBins(groups, bins)
        assert joined.error(1) == 1
        for order in (1, 2):
            assert joined.mean(order) == pytest.approx(separate.mean(order), rel=1e-9, abs=1e-12)
        result, expected = joined.to_gaps(), separate.to_gaps()
    assert result.counts.sum() == expected.counts.sum()
    np.testing.assert_allclose(result.gaps @ result.weights, expected.gaps @ expected.weights)


@given(crowded(), st.sampled_from([1, 3, 15]))
def test_interval_gaps_keep_all_rows_and_ties_together(rows: Rows, bins: int) -> None:
    gaps = bins_of_rows(rows, bins).to_gaps()
    p, correct = rows
    assert gaps.counts.sum() == len(p)
    assert gaps.gaps @ gaps.weights == pytest.approx(correct.mean() - p.mean(), abs=1e-12)
    assert len(gaps.counts) <= len(np.unique(p))
