"""Edge cases: bin edges, dtypes, and extreme predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.errors import InputError
from recalib.metrics import METRICS, Predictions
from recalib.metrics.evaluate import StreamingEvaluation, evaluate
from recalib.stats.bin_indices import bin_indices, upper_edges
from recalib.stats.class_bins import ClassBins
from recalib.stats.sums import Bins
from tests.metrics.definitions import DEFINITIONS, bin_by_definition
from tests.metrics.rows import defined

DTYPES = [np.float16, np.float32, np.float64]
everywhere = pytest.mark.parametrize("dtype", DTYPES)
usual_bins = pytest.mark.parametrize("bins", [10, 15])


def values(labels, **options) -> dict[str, float]:
    return {name: estimate.value for name, estimate in evaluate(labels, **options).items()}


@everywhere
@usual_bins
def test_value_on_an_edge_is_in_the_lower_bin(dtype: type, bins: int) -> None:
    """k/M, rounded to the dtype of the values, though float32(1/15) is larger than 1/15."""
    edges = (np.arange(1, bins + 1) / bins).astype(dtype)
    np.testing.assert_array_equal(bin_indices(edges, bins), np.arange(bins))
    above = np.nextafter(edges[:-1], dtype(1), dtype=dtype)
    np.testing.assert_array_equal(bin_indices(above, bins), np.arange(1, bins))
    below = np.nextafter(edges, dtype(0), dtype=dtype)
    np.testing.assert_array_equal(bin_indices(below, bins), np.arange(bins))


@everywhere
@pytest.mark.parametrize("bins", [1, 2, 3, 15, 49, 100, 511, 512, 513, 10_000])
def test_fast_bin_index_equals_search_over_edges(dtype: type, bins: int) -> None:
    """At every edge and its neighbours, and at every float16 there is from 0 to 1.

    512 bins are the most that float16 allows the quick way; 49 is where 1/49·49 is below 1.
    """
    edges = upper_edges(bins, np.dtype(dtype))
    neighbours = [np.nextafter(edges, dtype(end), dtype=dtype) for end in (0, 1)]
    halves = np.arange(np.float16(1).view(np.uint16) + 1, dtype=np.uint16).view(np.float16)
    values = np.concatenate([edges, *neighbours, halves.astype(dtype)])
    np.testing.assert_array_equal(bin_indices(values, bins), np.searchsorted(edges, values))


@everywhere
@usual_bins
def test_edge_probabilities_use_edges_of_their_dtype(dtype: type, bins: int) -> None:
    """float16(0.7) exceeds 0.7 and float32(0.7), but is in the bin up to 0.7."""
    p = (np.arange(bins // 2 + 1, bins + 1) / bins).astype(dtype)
    predictions = Predictions.from_probabilities(
        np.stack([p, 1 - p], axis=1), np.zeros(len(p), int)
    )
    state = Bins(bins)
    state.add(predictions.confidences, predictions.correct)
    np.testing.assert_array_equal(np.flatnonzero(state.count), np.arange(bins // 2, bins))
    classwise = ClassBins(2, bins)
    classwise.add(predictions.probabilities, predictions.labels)
    np.testing.assert_array_equal(classwise.correct[0], state.count)
    np.testing.assert_allclose(classwise.confidence[0], state.confidence, atol=1e-12)


@everywhere
@usual_bins
def test_zero_is_in_first_bin_and_one_in_last(dtype: type, bins: int) -> None:
    ends = np.array([0, np.finfo(dtype).smallest_subnormal, 1], dtype)
    assert bin_indices(ends, bins).tolist() == [0, 0, bins - 1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 200))
def test_bins_match_the_definition(numbers: list[float], bins: int) -> None:
    expected = [bin_by_definition(number, bins) for number in numbers]
    assert bin_indices(np.array(numbers), bins).tolist() == expected


@pytest.mark.parametrize("name", sorted({*defined(3)} - {"s99_accuracy"}))
def test_every_metric_of_one_row(name: str) -> None:
    """Its gap is the ECE for all bins; class-wise, each class has its own gap."""
    expected = {
        "accuracy": 1.0,
        "nll": -math.log(0.7),
        "brier": 0.3**2 + 0.2**2 + 0.1**2,
        "classwise_ece": (0.3 + 0.2 + 0.1) / 3,
        "classwise_ece_equal_mass": (0.3 + 0.2 + 0.1) / 3,
        "marginal_ece_l2": math.sqrt((0.3**2 + 0.2**2 + 0.1**2) / 3),
        "s99": 0.0,
        "mean_confidence": 0.7,
        "mean_entropy": -sum(p * math.log(p) for p in (0.7, 0.2, 0.1)),
        "classwise_loss_std": 0.0,
        "ks_error_classwise": (0.3 + 0.2 + 0.1) / 3,
        "ece_kde_classwise": (0.3 + 0.2 + 0.1) / 3,
        "ece_kde_canonical": 0.3 + 0.2 + 0.1,
        "brier_reliability": 0.3**2,
    } | dict.fromkeys(["aurc", "e_aurc", "brier_resolution", "brier_uncertainty"], 0.0)
    (estimate,) = evaluate(
        [0], probabilities=[[0.7, 0.2, 0.1]], metrics=[name], level=0.95
    ).values()
    if name not in expected and name in DEFINITIONS:
        expected[name] = DEFINITIONS[name]([[0.7, 0.2, 0.1]], [0], 15)
    assert estimate.value == pytest.approx(expected.get(name, 0.3), rel=1e-12)


def test_fewer_rows_than_bins_use_one_bin_per_row() -> None:
    """Equal mass with 3 rows and 15 bins: the mean of three gaps, and the root of their squares."""
    p = np.array([0.6, 0.8, 0.9])
    result = values([0, 1, 0], probabilities=np.stack([p, 1 - p], axis=1))
    gaps = np.array([0.4, -0.8, 0.1])
    assert result["ece_equal_mass"] == pytest.approx(np.abs(gaps).mean())
    assert result["ece_l2_equal_mass"] == pytest.approx(np.sqrt(np.mean(gaps**2)))
    assert result["ece"] == pytest.approx(np.abs(gaps).mean())
    assert result["mce"] == pytest.approx(0.8)


def test_tied_rows_split_between_bins_share_their_accuracy() -> None:
    """Four rows of 0.8, two correct, in two bins: 0.3; sorting by correctness gives 0.5."""
    for labels in ([0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]):
        result = values(labels, probabilities=[[0.8, 0.2]] * 4, bins=2)
        assert result["ece_equal_mass"] == pytest.approx(0.3)
        assert result["ece_l2_equal_mass"] == pytest.approx(0.3)


@everywhere
def test_always_masked_class_changes_only_class_means(dtype: type) -> None:
    """−inf everywhere: probability 0; only means over classes change."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 3)).astype(dtype)
    labels = rng.integers(0, 3, 50)
    masked = np.insert(logits, 1, -np.inf, axis=1)
    result = values(labels + (labels >= 1), logits=masked)
    expected = values(labels, logits=logits)
    expected["classwise_ece"] *= 3 / 4
    for name in ("marginal_ece_l2", "classwise_ce"):
        expected[name] *= math.sqrt(3 / 4)
    assert result == pytest.approx(expected, rel=1e-6 if dtype != np.float64 else 1e-12)


def test_rows_can_mask_different_classes() -> None:
    logits = np.array([[1.0, -np.inf, 0.0], [-np.inf, 2.0, -np.inf]])
    p = np.array([[1 / (1 + math.exp(-1)), 0, 1 / (1 + math.e)], [0, 1, 0]])
    assert values([0, 1], logits=logits) == pytest.approx(values([0, 1], probabilities=p))


def test_masked_label_is_rejected() -> None:
    with pytest.raises(InputError, match="masked"):
        evaluate([1], logits=[[0.0, -np.inf]])


@everywhere
def test_saturated_correct_rows_have_zero_error(dtype: type) -> None:
    """The interval has positive width: n correct rows do not prove zero error."""
    logits = np.zeros((20, 4), dtype)
    logits[:, 2] = 1000
    result = evaluate([2] * 20, logits=logits, level=0.95)
    one_hot = [[0.0, 0.0, 1.0, 0.0]] * 20
    for name, estimate in result.items():
        definition = DEFINITIONS.get(name, lambda *_: 0)
        assert estimate.value == definition(one_hot, [2] * 20, 15), name
    assert result["accuracy"].low < 1
    assert result["ece"].high > 0


@everywhere
def test_saturated_wrong_rows_have_maximal_error(dtype: type) -> None:
    """NLL is exact though p(y) = exp(−1000) underflows in every dtype."""
    logits = np.array([[1000, 0]] * 20, dtype)
    result = values([1] * 20, logits=logits)
    expected = dict.fromkeys(result, 1.0) | {"accuracy": 0, "nll": 1000, "brier": 2}
    zeros = ["e_aurc", "brier_resolution", "brier_uncertainty", "s99_accuracy", "mean_entropy"]
    expected |= dict.fromkeys([*zeros, "classwise_loss_std"], 0)
    assert result == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_largest_logits_have_finite_metrics_and_intervals(dtype: type) -> None:
    """Their difference overflows their dtype. (float16 is widened, and cannot.)"""
    largest = np.finfo(dtype).max
    logits = np.array([[largest, -largest], [0, 1]], dtype)
    for name, estimate in evaluate([1, 1], logits=logits, level=0.95).items():
        assert math.isfinite(estimate.value), name
        assert estimate.high is None or math.isfinite(estimate.high), name
    if dtype == np.float32:
        expected = (2 * float(largest) + math.log1p(math.exp(-1))) / 2
        assert values([1, 1], logits=logits)["nll"] == pytest.approx(expected, rel=1e-12)


def test_zero_label_probability_is_clipped() -> None:
    result = values([1], probabilities=[[1.0, 0.0]])
    assert result["nll"] == pytest.approx(-math.log(1e-38), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_float16_and_float32_logits_match_float64(dtype: type) -> None:
    """The float32 softmax has errors of about 1e-7; no confidence is that close to an edge."""
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(1000, 10)) * 4).astype(dtype)
    labels = rng.integers(0, 10, 1000)
    wide = logits.astype(np.float64)
    assert values(labels, logits=logits) == pytest.approx(values(labels, logits=wide), rel=1e-6)


def test_sums_are_float64() -> None:
    """20 million float32 confidences of 0.9, all right: float32 sums would stop at 2²⁴."""
    confidences = np.full(10**6, 0.9, np.float32)
    correct = np.ones(10**6, bool)
    metric = METRICS["ece"](15)
    state = metric.state(2)
    for _ in range(20):
        state.add(confidences, correct)
    assert state.count.sum() == 20 * 10**6
    # float32(0.9) is 0.9 − 2.4e-8, and Σ of 2·10⁷ rounded sums is off by far less.
    assert metric.estimate(state).value == pytest.approx(0.1, abs=1e-7)
    assert metric.estimate(state).value == pytest.approx(1 - float(np.float32(0.9)), abs=1e-9)


def test_state_size_is_constant() -> None:
    """The state has the same size after a thousand rows as after one."""

    def size(state: object) -> int:
        return sum(np.size(part) for part in vars(state).values())

    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), 1000), rng.integers(0, 3, 1000)
    for name, make in METRICS.items():
        metric = make(15)
        if not hasattr(metric, "state"):
            continue
        state = metric.state(3)
        before = size(state)
        metric.add(state, Predictions.from_probabilities(p, y))
        assert size(state) == before, name


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_top5_ties_prefer_lower_class_numbers(kind: str) -> None:
    """Eight tied classes: the first five are the top five."""
    same = np.zeros((8, 8)) if kind == "logits" else np.full((8, 8), 1 / 8)
    result = values(np.arange(8), **{kind: same}, metrics=["accuracy", "top5_accuracy"])
    assert result == {"accuracy": 1 / 8, "top5_accuracy": 5 / 8}
    larger = np.eye(8)[[7]] + (0 if kind == "logits" else same[:1])
    p = larger if kind == "logits" else larger / larger.sum()
    for label, among in enumerate([1, 1, 1, 1, 0, 0, 0, 1]):
        assert values([label], **{kind: p}, metrics=["top5_accuracy"])["top5_accuracy"] == among


@everywhere
def test_top5_ranks_logits_when_probabilities_underflow(dtype: type) -> None:
    logits = np.array([[1000, 0, 1, 2, 3, 4, 5]], dtype)
    for label, among in enumerate([1, 0, 0, 1, 1, 1, 1]):
        result = values([label], logits=logits, metrics=["top5_accuracy"])
        assert result["top5_accuracy"] == among


@everywhere
def test_confidence_of_exactly_99_percent_is_excluded(dtype: type) -> None:
    """float16(0.99) exceeds 0.99, but counts as the edge."""
    edge = dtype(0.99)
    sure = np.array([np.nextafter(edge, dtype(end), dtype=dtype) for end in (0, 1)] + [edge])
    p = np.stack([sure, 1 - sure], axis=1)
    result = values([1, 0, 1], probabilities=p)
    assert (result["s99"], result["s99_accuracy"]) == (pytest.approx(1 / 3), 1.0)


@pytest.mark.parametrize("weights", [None, [2.0, 1.0]])
def test_metrics_of_no_rows_are_absent(weights: list[float] | None) -> None:
    """In a stream as well, and also if they are named."""
    p = [[0.9, 0.1]] * 2
    names = ["roc_auc", "s99_accuracy", "s99"]
    result = evaluate([1, 1], probabilities=p, metrics=names, level=0.95, sample_weight=weights)
    assert list(result) == ["s99"]
    stream = StreamingEvaluation(2, weighted=weights is not None)
    stream.add([1, 1], probabilities=p, sample_weight=weights)
    assert not {"roc_auc", "s99_accuracy"} & (stream.finish(0.95).keys() | stream.error_bounds())


@everywhere
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_entropy_range(dtype: type, classes: int) -> None:
    """To the precision of 1/K."""
    even = np.full((3, classes), 1 / classes, dtype)
    result = values([0] * 3, probabilities=even, metrics=["mean_entropy"])["mean_entropy"]
    precision = max(np.finfo(dtype).eps, 1e-7 if dtype != np.float64 else 1e-15)
    assert result == pytest.approx(math.log(classes), rel=2 * float(precision))
    sure = values([0] * 3, probabilities=np.eye(classes, dtype=dtype)[:1].repeat(3, axis=0))
    assert (sure["mean_entropy"], sure["mean_confidence"]) == (0, 1)


def test_absent_classes_are_excluded_from_class_losses() -> None:
    """Of labels 0 and 2 only: mean losses log 2 and log 4, of which log 2 / 2 is the deviation."""
    p = [[0.5, 0.25, 0.25]] * 3
    result = values([0, 2, 2], probabilities=p)["classwise_loss_std"]
    assert result == pytest.approx(math.log(2) / 2, rel=1e-14)
    assert values([2, 2, 2], probabilities=p)["classwise_loss_std"] == 0


def test_label_binned_error_does_not_cancel_within_bins() -> None:
    """0.72 and 0.78, one of them right, in (0.7, 0.8]: ECE 0.25; |0.5 − 0.72| and |0.5 − 0.78|.

    With 3 of 4 right at those confidences ECE is 0, and each row is off by 0.03.
    """
    p = np.array([0.72, 0.78])
    pairs = np.stack([p, 1 - p], axis=1)
    result = values([0, 1], probabilities=pairs, bins=10)
    assert (result["ece"], result["ece_label_binned"]) == pytest.approx((0.25, 0.25))
    four = values([0, 0, 0, 1], probabilities=np.tile(pairs, (2, 1)), bins=10)
    assert (four["ece"], four["ece_label_binned"]) == pytest.approx((0, 0.03), abs=1e-12)


def test_single_label_data_has_every_metric() -> None:
    """All rows are of class 0: metrics are finite, and equal known values."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 40)
    for name, estimate in evaluate(
        [0] * 40, probabilities=p, metrics=defined(3), level=0.95
    ).items():
        assert math.isfinite(estimate.value), name
        assert estimate.low is None or math.isfinite(estimate.low + estimate.high), name
    result = values([0] * 40, probabilities=p, bins=1)
    expected = np.abs(p.mean(axis=0) - [1, 0, 0])
    assert result["classwise_ece"] == pytest.approx(expected.mean())
    assert result["marginal_ece_l2"] == pytest.approx(math.sqrt((expected**2).mean()))
    assert result["classwise_loss_std"] == 0
