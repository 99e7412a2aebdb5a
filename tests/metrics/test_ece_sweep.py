"""The monotonic sweep: number of bins, and fast paths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recalib.metrics.ece_sweep as module
from recalib.metrics import METRICS
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.ece_sweep import _max_bins, _possible_bins
from recalib.metrics.predictions import ties_of
from recalib.stats.sums import Cells
from tests.draws import few_or_many
from tests.metrics.rows import measure, rows


def most_bins(right: list[float]) -> int:
    ties = ties_of(np.arange(len(right)) / len(right))
    return _max_bins(ConfidenceGroups.from_rows(ties, np.array(right, bool)))


@pytest.mark.parametrize(
    ("right", "bins"),
    [
        ([1], 1),
        ([0, 1], 2),
        ([1, 0], 1),
        ([0, 0, 1, 1], 4),
        ([0, 1, 0, 1], 2),  # thirds are 0, 1, 1/2
        ([1, 0, 1, 1, 1, 1], 5),  # the first bin of two to five has both rows; sixths are 1, 0
        ([1, 1, 1, 1], 4),
        ([0, 0, 0], 3),
    ],
)
def test_number_of_monotonic_bins(right: list[float], bins: int) -> None:
    assert most_bins(right) == bins


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 60)), min_size=1, max_size=6),
    st.sampled_from([1, 7, 32_768]),
)
def test_long_runs_match_the_row_by_row_sweep(runs: list[tuple[bool, int]], chunk: int) -> None:
    """More bins than accuracy changes: only bins next to a change are checked."""
    right = np.repeat([float(value) for value, _ in runs], [length for _, length in runs])
    best = len(right)
    for bins in range(2, len(right) + 1):
        means = [part.mean() for part in np.array_split(right, bins)]
        if np.any(np.diff(means) < -1e-12):
            best = bins - 1
            break
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        assert most_bins(right.tolist()) == best


def test_possible_numbers_of_bins_hold_for_any_order_in_the_cells() -> None:
    """Rows of 2 to 5 cells, whose correctness is permuted in each cell."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        cell = np.sort(rng.integers(0, rng.integers(2, 6), 40))
        p = 0.6 + 0.05 * cell + 1e-6 * np.arange(40)
        correct = rng.random(40) < cell / 4
        state = Cells()
        state.add(p, correct)
        least, end = _possible_bins(ConfidenceGroups.from_cells(state))
        for _ in range(10):
            order = np.lexsort((rng.random(40), cell))
            bins = _max_bins(ConfidenceGroups.from_rows(ties_of(p), correct[order]))
            assert least <= bins < end


def test_perfectly_ranked_rows_get_one_bin_each() -> None:
    """Confidence ranks rows perfectly: the root mean squared residual."""
    p, y = np.array([0.6, 0.7, 0.8, 0.9]), np.array([False, False, True, True])
    expected = math.sqrt(np.mean((y - p) ** 2))
    assert measure("ece_sweep", p, y).value == pytest.approx(expected, rel=1e-12)


def test_one_bin_has_the_overall_gap() -> None:
    """The more confident half is wrong."""
    p, y = np.array([0.6, 0.7, 0.8, 0.9]), np.array([True, True, False, False])
    assert measure("ece_sweep", p, y).value == pytest.approx(0.25, rel=1e-12)


def test_less_biased_than_fixed_bins_on_calibrated_data() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, (100, 300))
    y = rng.random(p.shape) < p
    actual = {
        name: np.mean([measure(name, *value).value for value in zip(p, y, strict=True)])
        for name in ("ece_sweep", "ece_l2_equal_mass")
    }
    assert actual["ece_sweep"] < 0.8 * actual["ece_l2_equal_mass"]


@pytest.mark.parametrize("size", [1, 2, 40, 500])
def test_interval_and_floor_match_fixed_number_of_bins(size: int) -> None:
    """Confidences are distinct, so the ℓ2 error over M* equal counts is equal."""
    rng = np.random.default_rng(size)
    p = np.sort(rng.uniform(0.5, 1, size))
    y = rng.random(size) < p - 0.1
    bins = most_bins(y.tolist())
    fixed = METRICS["ece_l2_equal_mass"](bins).measure(rows(p, y), 0.9)
    result = measure("ece_sweep", p, y, 0.9)
    for field in ("value", "low", "high", "floor", "floor_high"):
        assert getattr(result, field) == pytest.approx(getattr(fixed, field), rel=1e-9, abs=1e-12)
    assert measure("ece_sweep", p, y).high is None


@few_or_many(50, 300)
def test_interval_covers_a_constant_gap(draws: int) -> None:
    """Overconfident by 0.2 everywhere: 93% of draws, less two standard errors."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(draws):
        p = rng.uniform(0.6, 1, 300)
        result = measure("ece_sweep", p, rng.random(300) < p - 0.2, 0.95)
        covered += result.low <= 0.2 <= result.high
        assert result.high - result.low < 0.2
    assert covered / draws >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / draws)
