"""Metrics of two classes against scikit-learn, torchmetrics, and formulas by pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from recalib.metrics import METRICS, Predictions
from recalib.metrics.evaluate import StreamingEvaluation, evaluate
from recalib.metrics.roc_auc import roc_auc_of_bins

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def shifted(rows: int, seed: int = 0, positives: float = 0.1) -> Rows:
    """Log-odds (N,) with a wrong base rate, and labels (N,)."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(np.log(positives / (1 - positives)), 1.5, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    labels[:2] = 0, 1
    return odds + 2, labels


def pairs(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    p = 1 / (1 + np.exp(-odds))
    return np.stack([1 - p, p], axis=1)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3, 40]),
    st.sampled_from([1, 4, 1000]),
    st.booleans(),
)
def test_roc_auc_equals_scikit_learn(seed: int, rows: int, levels: int, weighted: bool) -> None:
    """With ties and weights; of probabilities and of logits."""
    odds, labels = shifted(rows, seed)
    odds = np.round(odds * levels / 3) / levels
    weights = np.random.default_rng(seed).exponential(size=rows) if weighted else None
    expected = roc_auc_score(labels, odds, sample_weight=weights)
    for scores in (
        {"probabilities": pairs(odds)},
        {"logits": np.stack([1 - odds, 1 + 0 * odds], 1)},
    ):
        result = evaluate(labels, **scores, sample_weight=weights, metrics=["roc_auc"])
        assert result["roc_auc"].value == pytest.approx(expected, abs=1e-12)


def test_roc_auc_ranks_logits_whose_probabilities_are_all_one() -> None:
    logits = np.stack([np.zeros(4), [900.0, 1000.0, 1100.0, 1200.0]], axis=1)
    assert evaluate([0, 1, 0, 1], logits=logits)["roc_auc"].value == 0.75


def test_roc_auc_of_an_increasing_map_is_that_of_the_scores() -> None:
    odds, labels = shifted(500)
    before, after = (evaluate(labels, probabilities=pairs(z)) for z in (odds, odds / 3 - 2))
    assert after["roc_auc"] == before["roc_auc"]
    assert after["binary_ece"].value < before["binary_ece"].value / 2


def test_roc_auc_interval_has_the_variance_of_delong() -> None:
    """By pairs: components of each row are shares of the rows of the other class that it beats."""
    odds, labels = shifted(400)
    estimate = evaluate(labels, probabilities=pairs(odds), metrics=["roc_auc"], level=0.95)
    area, low, high = (getattr(estimate["roc_auc"], name) for name in ("value", "low", "high"))
    wins = (odds[labels == 1, None] > odds[labels == 0]).astype(float)
    variance = sum(wins.mean(axis=axis).var(ddof=1) / wins.shape[1 - axis] for axis in (0, 1))
    size, z = area * (1 - area) / variance, 1.959964
    # Wilson's ends are the roots of (area − x)² = z² x(1 − x)/size.
    for x in (low, high):
        assert (area - x) ** 2 == pytest.approx(z**2 * x * (1 - x) / size, rel=1e-5)


def test_roc_auc_of_separated_classes_has_an_interval() -> None:
    result = evaluate([0] * 20 + [1] * 5, probabilities=pairs(np.arange(25.0) - 20), level=0.95)
    assert result["roc_auc"].value == result["roc_auc"].high == 1
    assert 0.7 < result["roc_auc"].low < 0.9


@pytest.mark.parametrize("positives", [0.02, 0.3])
def test_roc_auc_intervals_contain_the_area_of_the_population(positives: float) -> None:
    """400 draws of 300 rows, P(fewer than 365 | .95) = .001."""
    odds, labels = shifted(200_000, 1, positives)
    truth = roc_auc_score(labels, odds)
    metric, hits = METRICS["roc_auc"](), 0
    for seed in range(400):
        z, y = shifted(300, seed + 2, positives)
        estimate = metric.measure(Predictions.from_probabilities(pairs(z), y), 0.95)
        hits += estimate.low <= truth <= estimate.high
    assert hits >= 365


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 30, 300]), st.booleans())
def test_streamed_roc_auc_is_within_its_bound(seed: int, rows: int, weighted: bool) -> None:
    odds, labels = shifted(rows, seed)
    odds = odds if seed % 2 else 1 + odds / 2000  # in few cells
    weights = np.random.default_rng(seed).exponential(size=rows) if weighted else None
    stream = StreamingEvaluation(2, weighted=weighted)
    stream.add(labels, probabilities=pairs(odds), sample_weight=weights)
    exact = evaluate(labels, probabilities=pairs(odds), sample_weight=weights)["roc_auc"].value
    difference = abs(stream.finish()["roc_auc"].value - exact)
    assert difference <= stream.error_bounds()["roc_auc"] + 1e-12


def test_roc_auc_of_bins_is_that_of_tied_rows() -> None:
    """Empty bins change nothing; without rows of both classes there is none."""
    odds, labels = shifted(300)
    bins = np.digitize(odds, [-9.0, -8.9, *np.linspace(-1, 4, 9)])
    zeros, ones = (np.bincount(bins[labels == k], minlength=12) for k in (0, 1))
    assert roc_auc_of_bins(zeros, ones) == pytest.approx(roc_auc_score(labels, bins), rel=1e-12)
    assert roc_auc_of_bins(zeros, 0 * ones) is None


def test_binary_ece_is_the_error_of_class_1_of_torchmetrics() -> None:
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    odds, labels = shifted(2000)
    p = pairs(odds)
    expected = binary_calibration_error(torch.tensor(p[:, 1]), torch.tensor(labels), n_bins=15)
    assert evaluate(labels, probabilities=p)["binary_ece"].value == pytest.approx(float(expected))


def test_binary_ece_finds_a_wrong_base_rate() -> None:
    """Log-odds shifted by log 50 at 2% positives: errors of both predictions cancel in `ece`."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-np.log(49), 2.5, 20_000)
    labels = (rng.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    result = evaluate(labels, probabilities=pairs(odds + np.log(50)), level=0.95)
    error = pairs(odds + np.log(50))[:, 1].mean() - labels.mean()
    assert result["binary_ece"].value == pytest.approx(error, abs=1e-3)
    assert result["binary_ece"].low > 10 * result["binary_ece"].floor


@pytest.mark.parametrize("level", [None, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_ece_is_the_ece_of_class_1_as_the_prediction(
    level: float | None, weighted: bool
) -> None:
    """Value, interval and floor, where class 1 is always predicted."""
    odds, labels = shifted(300)
    odds = np.abs(odds)
    weights = np.random.default_rng(0).exponential(size=300) if weighted else None
    options = {"probabilities": pairs(odds), "sample_weight": weights, "level": level}
    result = evaluate(labels, **options)
    assert result["binary_ece"] == result["ece"]
