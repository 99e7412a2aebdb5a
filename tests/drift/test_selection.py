"""Labels selected by outcome: bounds of accuracy, intervals, and what the monitor says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.monitoring.selection import SCENES, measure, states
from recalib.drift import CalibrationSums, Cohort, Monitor, MonitorOptions, summarise_window
from recalib.drift.selection import accuracy_bounds
from recalib.errors import InputError

EDGES = np.array([0.6, 0.7, 0.8, 0.9])
SHARES = st.floats(0.02, 0.98)


def bounds(accuracy: float, rate: float, ratio: float) -> tuple[float, float]:
    result = accuracy_bounds(np.array([accuracy]), np.array([rate]), ratio)
    return float(result.low[0]), float(result.high[0])


@given(SHARES, SHARES, st.floats(1, 20))
def test_bounds_are_sharp(accuracy: float, rate: float, ratio: float) -> None:
    """By search over the accuracies of all traffic for which allowed labelling rates exist."""
    total = np.linspace(0, 1, 20_001)[1:-1]
    right, wrong = accuracy * rate / total, (1 - accuracy) * rate / (1 - total)
    allowed = (right <= 1) & (wrong <= 1) & (right <= ratio * wrong) & (wrong <= ratio * right)
    low, high = bounds(accuracy, rate, ratio)
    inside = (low < total) & (total < high)
    np.testing.assert_array_equal(allowed[inside], True)
    outside = (total < low - 1e-9) | (total > high + 1e-9)
    np.testing.assert_array_equal(allowed[outside], False)


@pytest.mark.parametrize("accuracy", [0.1, 0.5, 0.95])
def test_extreme_bounds(accuracy: float) -> None:
    """No selection; any selection; and all traffic labelled, where selection is impossible."""
    assert bounds(accuracy, 0.3, 1.0) == pytest.approx((accuracy, accuracy))
    assert bounds(accuracy, 0.3, 1e6) == pytest.approx(
        (0.3 * accuracy, 1 - 0.3 * (1 - accuracy)), abs=1e-5
    )
    assert bounds(accuracy, 1.0, 5.0) == pytest.approx((accuracy, accuracy))


def test_without_labelled_errors_the_population_has_none() -> None:
    """A finite ratio means that some errors would be labelled; noise moves the bound far."""
    assert bounds(1.0, 0.3, 5.0) == (1.0, 1.0)
    assert accuracy_bounds(np.ones(1), np.full(1, 0.3), 5.0).low_slopes[0] == 5.0
    assert bounds(0.0, 0.3, 5.0) == (0.0, 0.0)


@given(SHARES, SHARES, st.floats(1, 20))
def test_derivatives_equal_finite_differences(a: float, rate: float, ratio: float) -> None:
    step = 1e-4
    below, at, above = (
        accuracy_bounds(np.array([x]), np.array([rate]), ratio) for x in (a - step, a, a + step)
    )
    if (below.low_curvatures[0] == 0) != (above.low_curvatures[0] == 0):
        return  # the kink between the two bounds
    slope = (above.low[0] - below.low[0]) / (2 * step)
    curvature = (above.low[0] - 2 * at.low[0] + below.low[0]) / step**2
    assert at.low_slopes[0] == pytest.approx(slope, rel=1e-3)
    assert at.low_curvatures[0] == pytest.approx(curvature, rel=1e-2, abs=1e-4)


def sums_of(rows: int, right: float, wrong: float, seed: int = 0) -> CalibrationSums:
    """Calibrated predictions, with labelling rates of right and wrong ones."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.5, 1, rows)
    y = rng.random(rows) < p
    labelled = rng.random(rows) < np.where(y, right, wrong)
    sums = CalibrationSums.empty(EDGES)
    sums.add_traffic(p)
    sums.add_labels(p[labelled], y[labelled])
    return sums


def test_interval_grows_with_the_assumed_ratio() -> None:
    sums = sums_of(5_000, 0.5, 1.0)
    plain = summarise_window(sums, weighting="traffic")
    assert (plain.selection_low, plain.selection_high) == (None, None)
    low, high = plain.ece_low, plain.ece_high
    assert low is not None
    assert high is not None
    assert low > 0.03
    for ratio in (1.2, 2.0, 5.0, 1000.0):
        window = summarise_window(sums, weighting="traffic", selection_ratio=ratio)
        assert (window.ece, window.ece_low, window.ece_high) == (
            plain.ece, plain.ece_low, plain.ece_high
        )  # fmt: skip
        assert window.selection_low is not None
        assert window.selection_high is not None
        assert window.selection_low <= low
        assert high <= window.selection_high
        low, high = window.selection_low, window.selection_high
    assert low == 0


def test_complete_labels_leave_no_room_for_selection() -> None:
    window = summarise_window(sums_of(5_000, 1.0, 1.0), weighting="traffic", selection_ratio=3.0)
    assert window.selection_low == window.ece_low
    assert window.selection_high == pytest.approx(window.ece_high, abs=0.005)


def test_silent_traffic_widens_the_band() -> None:
    sums = sums_of(5_000, 0.5, 1.0)
    top = sums.traffic_only(np.arange(5) == 4)
    window = summarise_window(sums, weighting="traffic", silent_traffic=top, selection_ratio=2.0)
    before = summarise_window(sums, weighting="traffic", selection_ratio=2.0)
    assert window.selection_high is not None
    assert before.selection_high is not None
    assert window.silent == pytest.approx(1 / 6, abs=0.01)
    known = (1 - window.silent) * before.selection_high
    assert window.selection_high == pytest.approx(known + window.silent * 0.95, abs=0.01)


def test_bad_ratios_are_rejected() -> None:
    sums = sums_of(100, 1.0, 1.0)
    for ratio in (0.5, 1001.0, float("nan")):
        with pytest.raises(InputError, match="selection_ratio"):
            summarise_window(sums, weighting="traffic", selection_ratio=ratio)
    with pytest.raises(InputError, match="unless the weighting is traffic"):
        summarise_window(sums, selection_ratio=2.0)
    with pytest.raises(InputError, match="unless the weighting is traffic"):
        MonitorOptions(weighting="labelled", selection_ratio=2.0)


def status_of(right: float, wrong: float, ratio: float = 1.0, offset: float = 0.0):
    """Monitor calibrated predictions with labelling rates of right and wrong ones."""
    rng = np.random.default_rng(0)
    monitor = Monitor(EDGES, options=MonitorOptions(selection_ratio=ratio))
    for hour in range(5):
        p = rng.uniform(0.5, 1, 3_000)
        y = rng.random(3_000) < p - offset
        labelled = rng.random(3_000) < np.where(y, right, wrong)
        sums = CalibrationSums.empty(EDGES)
        sums.add_traffic(p)
        cohort = Cohort(
            sums.traffic,
            p[labelled],
            y[labelled].astype(float),
            traffic_confidence=sums.traffic_confidence,
        )
        monitor.add(hour, hour + 1, cohort)
    return monitor.assess(5)


def test_reason_says_that_evidence_may_come_from_selection() -> None:
    status = status_of(0.5, 1.0)
    assert (status.state, status.may_be_selection) == ("stale", True)
    assert status.reason.endswith("this may come from the selection of labels")
    assert status.to_dict()["may_be_selection"]
    assert status.evidence.selection_ratio is None


def test_assumed_ratio_tells_whether_selection_explains_the_evidence() -> None:
    status = status_of(0.5, 1.0, ratio=2.0)
    assert (status.state, status.may_be_selection) == ("stale", True)
    assert status.evidence.selection_low == 0
    status = status_of(0.25, 0.5, ratio=2.0, offset=0.4)
    assert (status.state, status.may_be_selection) == ("stale", False)
    assert "cannot explain this up to a ratio of 2" in status.reason
    assert status.evidence.selection_low is not None
    assert status.evidence.selection_low > 0.1


def test_state_is_fresh_only_if_the_band_is_below_the_objective() -> None:
    assert status_of(0.5, 0.5).state == "fresh"
    status = status_of(0.5, 0.5, ratio=2.0)
    assert status.state == "unverified"
    assert "differ by a factor up to 2" in status.reason


def test_complete_labels_are_no_selection() -> None:
    status = status_of(1.0, 1.0, offset=0.1)
    assert (status.state, status.may_be_selection) == ("stale", False)
    assert "selection" not in status.reason


def test_single_confidence_cannot_be_tested_for_selection() -> None:
    """The reason says so."""
    monitor = Monitor([0.5])
    rng = np.random.default_rng(0)
    y = rng.random(4_000) < 0.8
    labelled = rng.random(4_000) < np.where(y, 0.5, 1.0)
    right = y[labelled].astype(float)
    monitor.add(0, 1, Cohort([0, 4_000], np.full(len(right), 0.8), right))
    status = monitor.assess(1)
    assert (status.state, status.may_be_selection) == ("stale", True)
    assert status.evidence.coverage_p_value is None
    assert not status.evidence.selective
    assert "label rates cannot be compared between confidences" in status.reason


@pytest.mark.parametrize(
    "name", ["calibrated, errors three times", "a single confidence, errors twice"]
)
def test_band_has_the_error_of_all_traffic(name: str) -> None:
    """A few windows; `python -m benchmarks.monitoring.selection` draws many of every kind."""
    outcome = measure(SCENES[name], 15)
    assert outcome.plain < outcome.exact == outcome.larger == 15
    counts = states(SCENES[name], 1)
    assert counts.named == counts.against == 1
