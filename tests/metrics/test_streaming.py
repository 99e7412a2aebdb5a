"""Values of streams against values of rows, and the bounds on their differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.metrics import METRICS, Predictions, StreamingMetric
from recalib.metrics.evaluate import StreamingEvaluation, evaluate

#: Metrics whose streams round confidences to cells.
ROUNDED = ["ece_label_binned", "ece_sweep", "ks_error", "smooth_ece", "aurc", "e_aurc"]
#: Those whose bins cut cells.
CUT = ["ece_sweep", "ece_equal_mass", "ece_l2_equal_mass"]
ROUNDED += CUT[1:]

KINDS = ["uniform", "near 1", "skewed", "few cells", "ties"]
LABELS = ["calibrated", "overconfident", "right", "wrong", "separated"]


def confidences(kind: str, rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Values above 1/2, from a given distribution."""
    if kind == "uniform":
        return rng.uniform(0.5, 1, rows)
    if kind == "near 1":
        return 1 - 10 ** -rng.uniform(0.4, 15, rows)
    if kind == "skewed":
        return np.maximum(rng.beta(30, 0.6, rows), 0.5)
    return 0.75 + rng.random(rows) / 600 if kind == "few cells" else rng.integers(5, 9, rows) / 8


def predictions(kind: str, labels: str, rows: int, seed: int, dtype: type) -> Predictions:
    """Rows of two classes with confidences of `kind`."""
    rng = np.random.default_rng(seed)
    p = np.clip(confidences(kind, rows, rng), 0.5, 1).astype(dtype)
    correct = {
        "calibrated": rng.random(rows) < p,
        "overconfident": rng.random(rows) < 0.9 * p,
        "right": np.ones(rows, bool),
        "wrong": np.zeros(rows, bool),
        "separated": p > np.median(p),
    }[labels]
    return Predictions.from_probabilities(np.column_stack([p, 1 - p]), np.where(correct, 0, 1))


def streamed(name: str, rows: Predictions, bins: int = 15) -> tuple[StreamingMetric, object]:
    metric = METRICS[name](bins)
    assert isinstance(metric, StreamingMetric)
    state = metric.state(2)
    for part in np.array_split(np.arange(len(rows)), 3):
        metric.add(state, rows.take(part))
    return metric, state


CASES = (
    st.sampled_from(ROUNDED),
    st.sampled_from(KINDS),
    st.sampled_from(LABELS),
    st.sampled_from([1, 2, 3, 30, 200]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1, 2, 15, 100]),
)


@pytest.mark.parametrize("examples", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_streamed_values_are_within_their_bounds(examples: int) -> None:
    settings(max_examples=examples)(given(*CASES)(check_bound))()


def check_bound(
    name: str, kind: str, labels: str, size: int, seed: int, dtype: type, bins: int
) -> None:
    """1e-12 for the rounding of sums."""
    rows = predictions(kind, labels, size, seed, dtype)
    metric, state = streamed(name, rows, bins)
    difference = abs(metric.estimate(state).value - metric.measure(rows).value)
    assert difference <= metric.error_bound(state) + 1e-12


#: The noise of `smooth_ece` takes a second.
TYPICAL = [
    pytest.param(
        name, kind, marks=[pytest.mark.slow] if name == "smooth_ece" or kind != "uniform" else []
    )
    for name in ROUNDED
    for kind in KINDS[:3]
]


@pytest.mark.parametrize(("name", "kind"), TYPICAL)
def test_streamed_values_of_typical_rows_are_close(name: str, kind: str) -> None:
    """5,000 rows: 0.001. Bounds are 0.01 for cuts through cells, and 0.001 for others.

    Ends of intervals are within 3% of the width, and floors within 5%: their noise is drawn.
    """
    rows = predictions(kind, "calibrated", 5000, 0, np.float32)
    metric, state = streamed(name, rows)
    exact, result = metric.measure(rows, 0.95), metric.estimate(state, 0.95)
    assert abs(result.value - exact.value) < 1e-3
    assert metric.error_bound(state) < (1e-2 if name in CUT else 1e-3)
    slack = 0.03 * (exact.high - exact.low) + abs(result.value - exact.value)
    assert (result.low, result.high) == pytest.approx((exact.low, exact.high), abs=slack)
    if name not in ("aurc", "e_aurc"):
        assert result.floor == pytest.approx(exact.floor, rel=0.05)
        assert result.floor_high == pytest.approx(exact.floor_high, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["calibrated", "overconfident"])
def test_sweep_of_a_million_rows_is_far_closer_than_its_bound(labels: str) -> None:
    """The bound is that of the worst order of the rows in each cell."""
    rows = predictions("uniform", labels, 10**6, 0, np.float64)
    metric, state = streamed("ece_sweep", rows)
    difference = abs(metric.estimate(state).value - metric.measure(rows).value)
    assert difference < 1e-3
    assert difference < metric.error_bound(state) < 0.06


@pytest.mark.parametrize("name", ["ks_error", "aurc", "e_aurc"])
@pytest.mark.parametrize("right_first", [True, False])
def test_the_worst_order_in_a_cell_reaches_the_bound(name: str, right_first: bool) -> None:
    """100 rows of one cell; the right ones have the lowest or the highest confidences."""
    p = 0.75 + (1 + np.arange(100)) / 300_000
    correct = np.arange(100) < 85 if right_first else np.arange(100) >= 35
    rows = Predictions.from_probabilities(np.column_stack([p, 1 - p]), np.where(correct, 0, 1))
    metric, state = streamed(name, rows)
    assert np.count_nonzero(state.count) == 1
    bound = metric.error_bound(state)
    difference = abs(metric.estimate(state).value - metric.measure(rows).value)
    assert 0.05 < difference <= bound + 1e-12
    if name == "ks_error" or right_first:  # errors that come last change the area less
        assert difference == pytest.approx(bound, rel=1e-2)


@pytest.mark.parametrize("labels", ["right", "wrong"])
@pytest.mark.parametrize("kind", ["uniform", "near 1", "ties"])
def test_bounds_are_small_if_all_rows_are_right_or_wrong(kind: str, labels: str) -> None:
    """The order of rows in a cell does not matter then."""
    rows = predictions(kind, labels, 2000, 0, np.float64)
    for name in ROUNDED:
        metric, state = streamed(name, rows)
        assert metric.error_bound(state) < 1e-3, name


def test_sweep_of_many_rows_does_not_expand_them() -> None:
    """10⁹ rows in three cells, right, wrong and right: M* is about 200,000.

    With more bins, the second bin has only wrong rows.
    """
    metric = METRICS["ece_sweep"]()
    state = metric.state(2)
    p = np.array([0.55, 0.6, 0.9])
    rows = Predictions.from_probabilities(np.column_stack([p, 1 - p]), np.array([0, 1, 0]))
    metric.add(state, rows)
    filled = np.flatnonzero(state.count)
    for name in state.sums:
        values = getattr(state, name)
        values[filled] *= np.array([10, 10**4, 10**9], values.dtype)
    result = metric.estimate(state, 0.95)
    assert result.value == pytest.approx(0.1, abs=2e-5)
    assert result.low <= result.value <= result.high < 0.11


def test_evaluation_bounds_its_differences_from_rows() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), 300), rng.integers(0, 3, 300)
    evaluation = StreamingEvaluation(3)
    evaluation.add(y, probabilities=p)
    exact, bounds = evaluate(y, probabilities=p), evaluation.error_bounds()
    assert bounds.keys() == exact.keys()
    assert {name for name, bound in bounds.items() if bound > 0} <= set(ROUNDED)
    for name, estimate in evaluation.finish().items():
        assert abs(estimate.value - exact[name].value) <= bounds[name] + 1e-12, name
