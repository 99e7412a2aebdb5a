"""Invariants of every member of METRICS, on random predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recalib.errors import InputError
from recalib.metrics import METRICS, Estimate, Predictions, State, StreamingMetric
from recalib.metrics.base import UndefinedMetricError
from recalib.metrics.evaluate import StreamingEvaluation, evaluate
from tests.metrics.rows import defined
from tests.metrics.strategies import Case, bins, coarse, distinct

#: The upper end of a metric's range, if it is not 1.
LARGEST = {"nll": math.inf, "brier": 2.0, "brier_resolution": 0.25, "brier_uncertainty": 0.25}
LARGEST |= {"mean_entropy": math.log(5), "classwise_loss_std": math.inf}
STREAMING = [name for name, metric in METRICS.items() if issubclass(metric, StreamingMetric)]
EQUAL_MASS = {"ece_equal_mass", "ece_l2_equal_mass", "classwise_ece_equal_mass"}
#: Metrics that depend on the number of rows: duplicating rows changes them.
SIZE_AWARE = {"ece_debiased", "classwise_ce", "ece_sweep"}
SIZE_AWARE |= {"ece_kde", "ece_kde_classwise", "ece_kde_canonical"}

#: For tests whose examples compute every metric.
few = settings(max_examples=8)
orders = st.randoms(use_true_random=False)
levels = st.sampled_from([0.5, 0.9, 0.95, 0.999])


def assert_alike(
    result: dict[str, Estimate], expected: dict[str, Estimate], tolerance: float = 1e-12
) -> None:
    """Every value of `expected` to rounding: both are the same sums in two orders.

    Ends of intervals to 1e-6: a variance that is a difference of sums of squares, and 0, is off by
    1e-16 of the squares; its root is off by 1e-8 of the values, times Student's t for few rows.
    """
    assert result.keys() == expected.keys()
    for name, estimate in expected.items():
        assert result[name].value == pytest.approx(estimate.value, rel=tolerance, abs=tolerance), (
            name
        )
        assert (result[name].low is None) == (estimate.low is None)
        if estimate.low is not None:
            ends = (result[name].low, result[name].high)
            slack = 1e-6 * (1 + estimate.value)
            assert ends == pytest.approx((estimate.low, estimate.high), abs=slack), name


def of_rows(
    name: str, estimate: Callable[[Any, float], Estimate], rows: State | Predictions
) -> dict[str, Estimate]:
    """The estimate by name; empty if no row counts."""
    try:
        return {name: estimate(rows, 0.95)}
    except UndefinedMetricError:
        return {}


@few
@given(coarse(), bins, orders)
def test_row_order_does_not_change_values(case: Case, bins: int, order) -> None:
    """Also with many ties across bins of equal mass."""
    p, y = case
    rows = list(range(len(y)))
    order.shuffle(rows)
    assert_alike(
        evaluate(y[rows], probabilities=p[rows], bins=bins),
        evaluate(y, probabilities=p, bins=bins),
    )


@given(st.integers(1, 40), st.integers(0, 40), st.sampled_from([2, 3, 7, 15]), orders)
def test_equal_mass_errors_of_ties_are_independent_of_order(
    rows: int, correct: int, bins: int, order
) -> None:
    """One confidence: every bin has the overall gap, for any order of correct rows."""
    y = [0] * min(correct, rows) + [1] * max(rows - correct, 0)
    order.shuffle(y)
    result = evaluate(y, probabilities=[[0.75, 0.25]] * rows, bins=bins, metrics=EQUAL_MASS)
    expected = abs(y.count(0) / rows - 0.75)
    assert [estimate.value for estimate in result.values()] == pytest.approx(
        [expected] * 3, abs=1e-12
    )


@few
@given(distinct(), bins, orders)
def test_class_order_does_not_change_values(case: Case, bins: int, order) -> None:
    """Without ties inside a row, where the first class would be the prediction."""
    p, y = case
    classes = list(range(p.shape[1]))
    order.shuffle(classes)
    assert_alike(
        evaluate(np.argsort(classes)[y], probabilities=p[:, classes], bins=bins),
        evaluate(y, probabilities=p, bins=bins),
    )


@few
@given(coarse(), bins, st.integers(2, 4), st.booleans())
def test_duplicated_rows_do_not_change_values(
    case: Case, bins: int, copies: int, mixed: bool
) -> None:
    """Unless bins of equal mass would be cut elsewhere: they are where N is no multiple of M.

    Cuts k·N/M are rounded down, and ⌊k·cN/M⌋ is c·⌊k·N/M⌋ only where nothing is rounded.
    """
    p, y = case
    names = [name for name in defined(p.shape[1]) if len(y) % bins == 0 or name not in EQUAL_MASS]
    names = [name for name in names if name not in SIZE_AWARE]
    more = np.tile(np.arange(len(y)), copies) if mixed else np.repeat(np.arange(len(y)), copies)
    assert_alike(
        evaluate(y[more], probabilities=p[more], bins=bins, metrics=names),
        evaluate(y, probabilities=p, bins=bins, metrics=names),
    )


@few
@given(coarse(), bins, levels)
def test_values_are_in_range_and_inside_their_intervals(
    case: Case, bins: int, level: float
) -> None:
    """An ulp over 1 is rounding: shares of rows add up to 1 only to that."""
    p, y = case
    for name, estimate in evaluate(y, probabilities=p, bins=bins, level=level).items():
        assert 0 <= estimate.value <= LARGEST.get(name, 1.0) * (1 + 1e-15), name
        assert (estimate.low is None) == (estimate.high is None), name
        if estimate.low is not None:
            assert 0 <= estimate.low <= estimate.value <= estimate.high < math.inf, name


@few
@given(coarse(), bins)
def test_errors_satisfy_norm_inequalities(case: Case, bins: int) -> None:
    """Mean ≤ maximum, ℓ1 ≤ ℓ2; and no binning makes the mean gap of all rows larger than ECE."""
    p, y = case
    actual = {k: v.value for k, v in evaluate(y, probabilities=p, bins=bins).items()}
    mean_gap = abs(actual["accuracy"] - p.max(axis=1).mean())
    assert actual["ece"] <= actual["mce"] + 1e-12
    assert actual["ece_equal_mass"] <= actual["ece_l2_equal_mass"] + 1e-12
    assert actual["ece"] <= actual["ece_l2"] + 1e-12
    assert actual["ece_l2"] <= actual["mce"] + 1e-12
    assert actual["ece"] <= actual["ece_label_binned"] + 1e-12
    assert actual["classwise_ece"] <= actual["marginal_ece_l2"] + 1e-12
    assert mean_gap <= min(actual["ece"], actual["ece_equal_mass"]) + 1e-12


@few
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(2, 5), st.integers(-(2**20), 2**20)
)
def test_shifted_logits_do_not_change_values(
    seed: int, rows: int, classes: int, shift: int
) -> None:
    """Eighths and integers add exactly in float64, so values are equal."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(-100, 100, (rows, classes)) / 8
    labels = rng.integers(0, classes, rows)
    shifted = logits + shift * rng.integers(0, 3, (rows, 1))
    assert evaluate(labels, logits=shifted) == evaluate(labels, logits=logits)


@few
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(2, 5), bins)
def test_logits_and_probabilities_give_equal_values(
    seed: int, rows: int, classes: int, bins: int
) -> None:
    """Logits are logarithms of probabilities that are in the middle of a bin, or far from edges."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), rows)
    on_edge = np.abs(p * bins - np.round(p * bins)) < 1e-9
    assume(not on_edge.any())
    y = rng.integers(0, classes, rows)
    assert_alike(
        evaluate(y, logits=np.log(p) + 3, bins=bins),
        evaluate(y, probabilities=p, bins=bins),
        tolerance=1e-9,
    )


@few
@given(case=coarse(), bins=bins, cuts=st.lists(st.integers(0, 30), max_size=5), order=orders)
def test_merged_batches_equal_one_batch(case: Case, bins: int, cuts: list[int], order) -> None:
    """For any split, empty batches included, with one state for each batch, merged in any order."""
    p, y = case
    batches = np.split(np.arange(len(y)), sorted(cut for cut in cuts if cut <= len(y)))
    order.shuffle(batches)
    totals = {}
    for name in STREAMING:
        metric = METRICS[name](bins)
        kind = metric.state_kind
        if kind not in totals:
            totals[kind] = metric.state(p.shape[1])
            for rows in batches:
                state = metric.state(p.shape[1])
                metric.add(state, Predictions.from_probabilities(p[rows], y[rows]))
                totals[kind] = totals[kind].merge(state)
        predictions = Predictions.from_probabilities(p, y)
        assert_alike(
            of_rows(name, metric.estimate, totals[kind]), of_rows(name, metric.measure, predictions)
        )


@few
@given(case=coarse(), bins=bins, cut=st.integers(0, 30))
def test_streaming_evaluation_equals_evaluation(case: Case, bins: int, cut: int) -> None:
    """Two evaluations of the two parts of the rows, a row at a time, merged."""
    p, y = case
    parts = [StreamingEvaluation(p.shape[1], bins) for _ in range(2)]
    for row in range(len(y)):
        parts[row >= cut].add(y[row : row + 1], probabilities=p[row : row + 1])
    merged = parts[0].merge(parts[1])
    expected = evaluate(
        y, probabilities=p, bins=bins, metrics=defined(p.shape[1], STREAMING), level=0.95
    )
    assert_alike(merged.finish(0.95), expected)


@few
@given(coarse(), bins)
def test_metrics_of_one_kind_share_a_state(case: Case, bins: int) -> None:
    """A metric gives equal results from any state of the same kind."""
    p, y = case
    predictions = Predictions.from_probabilities(p, y)
    states = {}
    for name in STREAMING:
        metric = METRICS[name](bins)
        kind = metric.state_kind
        if kind not in states:
            states[kind] = metric.state(p.shape[1])
            metric.add(states[kind], predictions)
        assert_alike(
            of_rows(name, metric.estimate, states[kind]), of_rows(name, metric.measure, predictions)
        )


def test_rejected_batch_leaves_evaluation_unchanged() -> None:
    """A batch with another K or invalid labels changes no count."""
    evaluation = StreamingEvaluation(3)
    evaluation.add([0, 1], logits=[[1, 0, 0], [1, 0, 0]])
    before = evaluation.finish(0.95)
    for labels, logits in (([0], [[1.0, 0]]), ([0], [[1.0, 0, 0, 0]]), ([3], [[1.0, 0, 0]])):
        with pytest.raises(InputError):
            evaluation.add(labels, logits=logits)
    assert evaluation.finish(0.95) == before


@pytest.mark.parametrize("other", [StreamingEvaluation(3, 10), StreamingEvaluation(4, 15)])
def test_evaluations_of_different_shape_do_not_merge(other: StreamingEvaluation) -> None:
    evaluation = StreamingEvaluation(3, 15)
    evaluation.add([0], logits=[[1, 0, 0]])
    other.add([0], logits=[[1] + [0] * (other.classes - 1)])
    before = evaluation.finish(0.95)
    with pytest.raises(ValueError, match="cannot be merged"):
        evaluation.merge(other)
    assert evaluation.finish(0.95) == before


def bins_of(name: str, bins: int) -> int:
    return getattr(METRICS[name](bins).state(3), "bins", 0)


@pytest.mark.parametrize(
    "name", [name for name in STREAMING if bins_of(name, 10) != bins_of(name, 15)]
)
def test_states_with_different_bins_do_not_merge(name: str) -> None:
    first, second = METRICS[name](10).state(3), METRICS[name](15).state(3)
    with pytest.raises(ValueError, match="cannot be merged"):
        first.merge(second)
