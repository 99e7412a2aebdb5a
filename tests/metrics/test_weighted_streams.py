"""Streams of weighted rows against the metrics of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.metrics import METRICS, StreamingMetric
from recalib.metrics.evaluate import StreamingEvaluation, evaluate

#: Metrics whose streams round confidences to cells; their bounds limit the difference.
ROUNDED = {
    name
    for name, metric in METRICS.items()
    if issubclass(metric, StreamingMetric) and metric.error_bound is not StreamingMetric.error_bound
}


def weighted_rows(
    rows: int, weights: str, seed: int, dtype: type = np.float64
) -> tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.floating]]:
    """Probabilities (N, 4), labels and weights (N,), of which some are 0."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(4, 0.3), rows).astype(dtype)
    labels = (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=3)
    w = {
        "unequal": rng.lognormal(0, 1.5, rows) * (rng.random(rows) < 0.9),
        "small": rng.uniform(1e-6, 1e-3, rows),
        "whole": rng.integers(0, 4, rows).astype(float),
    }[weights]
    w[0] = 1
    return p, labels, w


def streamed(
    p: NDArray[np.floating], labels: NDArray[np.int64], w: NDArray[np.floating], bins: int = 15
) -> StreamingEvaluation:
    """Three parts, merged, of which the last two are merged before."""
    parts = []
    for at in np.array_split(np.arange(len(p)), 3):
        part = StreamingEvaluation(4, bins, weighted=True)
        if len(at):
            part.add(labels[at], probabilities=p[at], sample_weight=w[at])
        parts.append(StreamingEvaluation.from_bytes(part.to_bytes()))
    return parts[0].merge(parts[1].merge(parts[2]))


@settings(max_examples=25)
@given(
    st.sampled_from([1, 2, 7, 400]),
    st.sampled_from(["unequal", "small", "whole"]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1, 10, 100]),
    st.integers(0, 2**32 - 1),
)
def test_values_are_those_of_all_rows(
    rows: int, weights: str, dtype: type, bins: int, seed: int
) -> None:
    p, labels, w = weighted_rows(rows, weights, seed, dtype)
    stream = streamed(p, labels, w, bins)
    expected = evaluate(labels, probabilities=p, sample_weight=w, bins=bins)
    result, bounds = stream.finish(), stream.error_bounds()
    assert result.keys() == expected.keys() == bounds.keys()
    for name, estimate in result.items():
        bound = bounds[name] if name in ROUNDED else 0.0
        assert abs(estimate.value - expected[name].value) <= bound + 1e-12, name


@pytest.mark.parametrize("weights", ["unequal", "whole"])
def test_intervals_and_floors_are_those_of_all_rows(weights: str) -> None:
    """To 1e-9, but for metrics of cells, whose noise is drawn.

    Their intervals are within 3% of the width, and floors within 10%.
    """
    p, labels, w = weighted_rows(3000, weights, 0)
    result = streamed(p, labels, w).finish(0.95)
    for name, exact in evaluate(labels, probabilities=p, sample_weight=w, level=0.95).items():
        estimate, absolute, relative = result[name], 1e-9, 1e-9
        if name in ROUNDED:
            absolute, relative = max(0.03 * (exact.high - exact.low), 1e-3), 0.1
        if exact.low is None:
            assert estimate.low is None, name
            continue
        ends = exact.low, exact.high
        assert (estimate.low, estimate.high) == pytest.approx(ends, abs=absolute), name
        if exact.floor is None:
            assert estimate.floor is None, name
            continue
        floors = exact.floor, exact.floor_high
        assert (estimate.floor, estimate.floor_high) == pytest.approx(floors, rel=relative), name


def test_bounds_are_small_for_typical_rows() -> None:
    p, labels, w = weighted_rows(3000, "unequal", 1)
    bounds = streamed(p, labels, w).error_bounds()
    assert {name: bound for name, bound in bounds.items() if bound > 2e-2} == {}


def test_weight_of_a_row_is_1_by_default() -> None:
    p, labels, _ = weighted_rows(200, "whole", 0)
    stream, ones = (StreamingEvaluation(4, weighted=True) for _ in range(2))
    stream.add(labels, probabilities=p)
    ones.add(labels, probabilities=p, sample_weight=np.ones(200))
    assert stream == ones
    assert stream.rows == 200


def test_stream_without_weights_takes_none_and_merges_with_none() -> None:
    p, labels, w = weighted_rows(20, "whole", 0)
    plain, weighted = StreamingEvaluation(4), StreamingEvaluation(4, weighted=True)
    with pytest.raises(InputError, match="weight_kind: found survey; accepted: counts"):
        plain.add(labels, probabilities=p, sample_weight=w)
    with pytest.raises(InputError, match="weight_kind: found counts; accepted: survey"):
        weighted.add(labels, probabilities=p, sample_weight=w, weight_kind="counts")
    with pytest.raises(ValueError, match="with and without weights"):
        plain.merge(weighted)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], r"sample_weight\[1\]: found -1"),
        ([1.0], r"sample_weight: found shape \(1,\); accepted: shape \(2,\)"),
        ([1.0, 1e200], r"sample_weight\[1\]: found 1e\+200; accepted: 0, or 1e-100 to 1e\+100"),
        ([1.0, 1e-200], r"sample_weight\[1\]: found 1e-200"),
    ],
)
def test_invalid_weights_of_a_batch_change_nothing(weights: list[float], message: str) -> None:
    stream = StreamingEvaluation(2, weighted=True)
    with pytest.raises(InputError, match=message):
        stream.add([0, 1], probabilities=[[0.5, 0.5]] * 2, sample_weight=weights)
    assert stream.rows == 0


def test_batch_of_zeros_is_taken_and_zeros_alone_have_no_metrics() -> None:
    stream = StreamingEvaluation(2, weighted=True)
    stream.add([0, 1], probabilities=[[0.5, 0.5]] * 2, sample_weight=[0, 0])
    with pytest.raises(InputError, match="sample_weight: found zeros only"):
        stream.finish()
    stream.add([0, 1], probabilities=[[0.9, 0.1]] * 2, sample_weight=[3, 1])
    assert stream.finish()["accuracy"].value == 0.75


def test_counts_of_a_stream_repeat_rows() -> None:
    """All metrics are those of the repeated rows, in more than one part; a batch may have none."""
    p, labels, _ = weighted_rows(300, "whole", 0)
    counts = np.random.default_rng(0).integers(0, 300, 300)
    stream, repeated = StreamingEvaluation(4), StreamingEvaluation(4)
    stream.add(labels, probabilities=p, sample_weight=counts, weight_kind="counts")
    stream.add(labels, probabilities=p, sample_weight=np.zeros(300), weight_kind="counts")
    repeated.add(np.repeat(labels, counts), probabilities=np.repeat(p, counts, axis=0))
    assert stream.rows == repeated.rows == counts.sum()
    expected = repeated.finish(0.95)
    for name, estimate in stream.finish(0.95).items():
        known = {key: value for key, value in vars(expected[name]).items() if value is not None}
        assert {key: getattr(estimate, key) for key in known} == pytest.approx(known), name
    with pytest.raises(InputError, match="sample_weight: found counts that cannot be repeated"):
        stream.add(labels, probabilities=p, sample_weight=counts / 2, weight_kind="counts")
