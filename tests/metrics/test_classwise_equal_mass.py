"""Class-wise error over bins of equal counts: bins and interval coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.metrics import METRICS, Predictions
from recalib.metrics.classwise_equal_mass import _sums_of_bins
from tests.draws import few_or_many

Values = NDArray[np.float64]
BINS = 15


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 20))
def test_tied_rows_share_the_bin_of_their_middle_row(seed: int, rows: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    p = np.sort(rng.choice(np.append(rng.random(4), rng.random(rows)), rows))
    occurred = rng.random(rows) < p
    starts = np.array([part[0] for part in np.array_split(np.arange(rows), min(bins, rows))])
    expected = np.zeros((5, len(starts)))
    for value in np.unique(p):
        members = np.flatnonzero(p == value)
        middle = members[len(members) // 2]
        at = max(k for k, start in enumerate(starts) if start <= middle)
        for i in members:
            y = float(occurred[i])
            expected[:, at] += [1, p[i], p[i] ** 2, y, p[i] * y]
    result = np.stack(_sums_of_bins(p, occurred, starts))
    assert result == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert result[0].sum() == rows


def drawn(rng: np.random.Generator, rows: int, sharpness: float) -> tuple[Values, Values]:
    """Probabilities of three classes, and the true ones: powers of them."""
    p = rng.dirichlet(np.full(3, 0.5), rows)
    p = (p + 1e-4) / (1 + 3e-4)
    truth = p**sharpness
    return p, truth / truth.sum(axis=1, keepdims=True)


def labels(rng: np.random.Generator, truth: Values) -> NDArray[np.int64]:
    actual: NDArray[np.int64] = (truth.cumsum(axis=1)[:, :2] < rng.random((len(truth), 1))).sum(
        axis=1
    )
    return actual


@pytest.mark.usefixtures("without_floors")
@pytest.mark.parametrize("sharpness", [1.0, 0.6])
@few_or_many(40, 300)
def test_interval_covers_the_true_value(sharpness: float, draws: int) -> None:
    """In 93% of draws of 400 rows but for two standard errors; calibrated, and too sure.

    The truth is the error of 150,000 rows with probabilities for outcomes.
    """
    rng = np.random.default_rng(0)
    metric = METRICS["classwise_ece_equal_mass"](BINS)
    p, truth = drawn(rng, 150_000, sharpness)
    order = np.argsort(p, axis=0)
    gaps = np.take_along_axis(truth - p, order, axis=0).reshape(BINS, -1, 3).mean(axis=1)
    true_value = float(np.abs(gaps).mean())
    covered = 0
    for _ in range(draws):
        p, truth = drawn(rng, 400, sharpness)
        result = metric.measure(Predictions.from_probabilities(p, labels(rng, truth)), 0.95)
        covered += result.low - 1e-9 <= true_value <= result.high
        assert result.high - result.low < 0.15
    assert covered / draws >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / draws)


def test_floor_matches_calibrated_rows() -> None:
    """Labels drawn as the probabilities say, 300 times, each measured by the metric itself."""
    rng = np.random.default_rng(1)
    metric = METRICS["classwise_ece_equal_mass"](BINS)
    p, _ = drawn(rng, 300, 1.0)
    again = [
        metric.measure(Predictions.from_probabilities(p, labels(rng, p))).value for _ in range(300)
    ]
    result = metric.measure(Predictions.from_probabilities(p, labels(rng, p)), 0.95)
    assert result.floor == pytest.approx(np.mean(again), rel=0.05)
    # Classes of a row are dependent, the floor treats them as independent; only the spread differs.
    assert result.floor_high == pytest.approx(np.quantile(again, 0.95), rel=0.12)
    assert (
        METRICS["classwise_ece_equal_mass"](BINS)
        .measure(Predictions.from_probabilities(p, labels(rng, p)))
        .floor
        is None
    )
