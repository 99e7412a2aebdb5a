"""Metrics of weighted rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import recalib
from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.metrics import METRICS
from recalib.metrics.evaluate import evaluate
from tests.metrics.rows import defined
from tests.metrics.strategies import Case, bins, coarse

WEIGHTED = [name for name, metric in METRICS.items() if metric.takes_weights]


@settings(max_examples=30)
@given(coarse(), bins, st.integers(0, 2**32 - 1))
def test_whole_weights_equal_repeated_rows(case: Case, bins: int, seed: int) -> None:
    """Rows of weight 0 count as absent; both are the same sums in two orders."""
    p, labels = case
    weights = np.random.default_rng(seed).integers(0, 4, len(labels))
    assume(weights.any())
    result = evaluate(labels, probabilities=p, sample_weight=weights, bins=bins)
    repeated = evaluate(
        np.repeat(labels, weights),
        probabilities=np.repeat(p, weights, axis=0),
        metrics=list(result),
        bins=bins,
    )
    assert {name: item.value for name, item in result.items()} == pytest.approx(
        {name: item.value for name, item in repeated.items()}, rel=1e-9, abs=1e-9
    )


@settings(max_examples=5)
@given(coarse(), bins, st.sampled_from([1e-300, 1e-3, 7.0, 1e300]), st.integers(0, 2**32 - 1))
def test_scale_of_weights_changes_nothing(case: Case, bins: int, scale: float, seed: int) -> None:
    """Neither values, intervals nor floors; and each value is inside its interval."""
    p, labels = case
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, len(labels))
    result, scaled = (
        evaluate(labels, probabilities=p, sample_weight=w, bins=bins, level=0.95)
        for w in (weights, scale * weights)
    )
    for name, estimate in result.items():
        ends = [number for number in vars(estimate).values() if number is not None]
        assert [
            number for number in vars(scaled[name]).values() if number is not None
        ] == pytest.approx(ends, rel=1e-6, abs=1e-6), name
        if estimate.low is not None and estimate.high is not None:
            assert estimate.low <= estimate.value <= estimate.high, name


def test_weights_of_one_equal_no_weights() -> None:
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(4), 300), rng.integers(0, 4, 300)
    names = defined(4, WEIGHTED)
    plain = evaluate(labels, probabilities=p, metrics=names, level=0.95)
    ones = evaluate(labels, probabilities=p, metrics=names, level=0.95, sample_weight=[1] * 300)
    assert ones == plain


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize(("rows", "classes"), [(400, 4), (30, 100)])
def test_nearly_equal_weights_give_the_same_estimates(
    scale: float, rows: int, classes: int
) -> None:
    """Rounding of weights changes neither bins nor intervals and floors, also if bins tie."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(classes), rows)
    p[::2] = np.eye(classes)[rng.integers(0, classes, rows // 2)]
    labels = rng.integers(0, classes, rows)
    weights = scale * (1 + 1e-12 * (np.arange(rows) == 0))
    weighted = evaluate(labels, probabilities=p, level=0.95, sample_weight=weights)
    plain = evaluate(labels, probabilities=p, level=0.95, metrics=list(weighted))
    for name, estimate in plain.items():
        expected = [number for number in vars(estimate).values() if number is not None]
        result = [number for number in vars(weighted[name]).values() if number is not None]
        assert result == pytest.approx(expected, rel=1e-9, abs=1e-9), name


def test_rows_of_weight_0_change_no_estimate() -> None:
    rng = np.random.default_rng(1)
    p, labels = rng.dirichlet(np.ones(4), 300), rng.integers(0, 4, 300)
    for weights in (rng.random(300), np.full(300, 7.0)):
        weights[::3] = 0
        used = weights > 0
        all_rows = evaluate(labels, probabilities=p, level=0.95, sample_weight=weights)
        some = evaluate(
            labels[used], probabilities=p[used], level=0.95, sample_weight=weights[used]
        )
        assert all_rows == some


@pytest.mark.parametrize("name", [name for name in METRICS if name not in WEIGHTED])
def test_metric_without_a_weighted_form_is_refused(name: str) -> None:
    message = rf"metrics: found {name}, which has no weighted form, with sample_weight; accepted:"
    with pytest.raises(InputError, match=message):
        recalib.evaluate([0, 1], [0.2, 0.7], sample_weight=[1.0, 2.0], metrics=["nll", name])


def test_default_metrics_with_weights_are_those_with_a_weighted_form() -> None:
    result = recalib.evaluate([0, 1], [0.2, 0.7], sample_weight=[1.0, 2.0])
    without = {"ece_debiased", "ece_sweep", "classwise_ce", "s99_accuracy"}
    assert set(result) == {name for name in defined(2) if not METRICS[name].on_request} - without
    assert result["nll"] == pytest.approx((-np.log(0.8) - 2 * np.log(0.7)) / 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], r"sample_weight\[1\]: found -1"),
        ([1.0, np.nan], r"sample_weight\[1\]: found nan"),
        ([1.0], r"sample_weight: found shape \(1,\); accepted: shape \(2,\)"),
        ([0.0, 0.0], "sample_weight: found zeros only"),
        (["a", "b"], "sample_weight: found dtype"),
    ],
)
def test_invalid_weights_are_rejected(weights: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        recalib.evaluate([0, 1], [0.2, 0.7], sample_weight=weights)


def population(
    rows: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.int64]]:
    """Return whether rows are hard, probabilities, and labels: hard rows are more overconfident."""
    hard = rng.random(rows) < 0.3
    logits = rng.normal(size=(rows, 3)) * np.where(hard, 1.0, 3.0)[:, None]
    powers = np.exp(logits * np.where(hard, 0.5, 0.9)[:, None])
    truth = powers / powers.sum(axis=1, keepdims=True)
    labels = (truth.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    powers = np.exp(logits)
    return hard, powers / powers.sum(axis=1, keepdims=True), np.minimum(labels, 2)


@pytest.mark.slow
def test_intervals_of_weighted_samples_have_nominal_coverage() -> None:
    """Hard rows are six times as often in a sample; weights undo it, and plain metrics do not."""
    rng = np.random.default_rng(1)
    _, p, labels = population(1_000_000, rng)
    without_interval = {"classwise_loss_std", "marginal_sb_ece"}
    names = [name for name in defined(3, WEIGHTED) if name not in without_interval]
    truth = recalib.evaluate(labels, p, metrics=names)
    draws, covered = 100, dict.fromkeys([*names, "plain accuracy"], 0)
    for _ in range(draws):
        hard, p, labels = population(2000, rng)
        rates = np.where(hard, 0.9, 0.15)
        rows = rng.random(len(rates)) < rates
        result = evaluate(
            labels[rows],
            probabilities=p[rows],
            sample_weight=1 / rates[rows],
            metrics=names,
            level=0.95,
        )
        plain = evaluate(labels[rows], probabilities=p[rows], metrics=["accuracy"], level=0.95)
        for name, estimate in [*result.items(), ("plain accuracy", plain["accuracy"])]:
            low, high = estimate.low, estimate.high
            assert low is not None
            assert high is not None
            covered[name] += low <= truth[name.removeprefix("plain ")] <= high
    assert covered.pop("plain accuracy") < 50
    # P(X < 88) for 100 draws of 0.95 is 0.001; s99_accuracy has few errors among its rows.
    assert {name: count for name, count in covered.items() if count < 88} == {}


def test_counts_are_repeated_rows() -> None:
    """Intervals and floors, metrics without a weighted form, and independent labels too."""
    rng = np.random.default_rng(0)
    p, labels, times = rng.dirichlet(np.ones(4), 60), rng.integers(0, 4, 60), rng.integers(0, 4, 60)
    rows = np.repeat(np.arange(60), times)
    counts = {"sample_weight": times, "weight_kind": "counts"}
    result = recalib.evaluate(labels, p, intervals=True, **counts)
    assert result == recalib.evaluate(labels[rows], p[rows], intervals=True)
    assert "classwise_ce" in result
    fitted = fit(np.log(p), labels)
    assert fitted.evaluate(np.log(p), labels, **counts) == fitted.evaluate(
        np.log(p[rows]), labels[rows]
    )
    hits = np.eye(4)[labels]
    by_label = recalib.evaluate(hits, p, task="multilabel", intervals=True, **counts)
    repeated = recalib.evaluate(hits[rows], p[rows], task="multilabel", intervals=True)
    assert by_label == repeated
    assert by_label.labels == repeated.labels


@pytest.mark.parametrize("counts", [[0.5, 1], [1e9, 1]])
def test_counts_that_cannot_be_repeated_are_rejected(counts: list[float]) -> None:
    with pytest.raises(InputError, match=r"sample_weight: .*whole numbers"):
        recalib.evaluate([0, 1], [0.2, 0.7], sample_weight=counts, weight_kind="counts")


def test_an_unknown_kind_of_weights_is_rejected() -> None:
    with pytest.raises(InputError, match=r"weight_kind: .*survey or counts"):
        recalib.evaluate([0, 1], [0.2, 0.7], weight_kind="count")  # type: ignore[arg-type]
