"""The monitoring benchmark: its streams and its verdicts are correct."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.monitoring import detectors, intervals
from benchmarks.monitoring.detectors import DETECTORS, EXACT, OURS
from benchmarks.monitoring.guarantees import Row, verdict
from benchmarks.monitoring.others import flags
from benchmarks.monitoring.streams import BENT, DRIFTS, LABELS, NULLS, ONSET, TOLERANCE, stream


def z_by_bin(p, y) -> np.ndarray:
    """Return the standardised residuals of ten groups of confidence."""
    groups = np.array_split(np.argsort(p), 10)
    return np.array([np.sum(y[g] - p[g]) / np.sqrt(np.sum(p[g] * (1 - p[g]))) for g in groups])


@pytest.mark.parametrize("kind", [*NULLS, *DRIFTS, *BENT])
def test_streams_are_deterministic_and_valid(kind: str):
    p, y = stream(kind, 3)
    again = stream(kind, 3)
    np.testing.assert_array_equal(p, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not np.array_equal(p, stream(kind, 4)[0])
    assert 0.75 * LABELS <= len(p) == len(y) <= LABELS
    assert p.min() >= 0.5
    assert p.max() <= 1
    assert set(y) == {0.0, 1.0}


@pytest.mark.parametrize("kind", [*NULLS, *DRIFTS, *BENT])
def test_streams_without_drift_are_calibrated(kind: str):
    """Of 20 streams together: before the onset all but the tolerated, after it the nulls."""
    drawn = [stream(kind, seed) for seed in range(20)]
    for late in (False, True):
        rows = slice(ONSET, None) if late else slice(0, ONSET)
        p, y = (np.concatenate([sample[which][rows] for sample in drawn]) for which in (0, 1))
        off = np.abs(z_by_bin(p, y)).max()
        if kind in BENT or "tolerated" in kind or (late and kind in DRIFTS):
            assert off > 4
        elif kind != "delayed":  # whose latest labels, rather of what was right, are missing
            assert off < 4


@pytest.mark.parametrize("kind", ["tolerated", "tolerated, shift"])
def test_tolerated_stream_has_the_tolerated_error(kind: str):
    drawn = [stream(kind, seed) for seed in range(60)]
    p, y = (np.concatenate([sample[which] for sample in drawn]) for which in (0, 1))
    for at, gap in ((p > 0.87) & (p < 0.97), -TOLERANCE), ((p > 0.6) & (p < 0.84), TOLERANCE):
        error = np.sqrt(np.mean(p[at] * (1 - p[at])) / at.sum())
        assert np.mean((y - p)[at]) == pytest.approx(gap, abs=4 * error)


def test_detector_alarms_only_on_drift():
    assert DETECTORS[OURS](*stream("calibrated", 0)) is None
    alarm = DETECTORS[OURS](*stream("prior shift", 0))
    assert alarm is not None
    assert ONSET < alarm < ONSET + 3_000


def test_windows_alarm_above_the_threshold():
    p, y = np.full(3_000, 0.8), np.zeros(3_000)
    y[:1_000] = np.arange(1_000) % 5 != 0
    assert detectors._windows(detectors._ece, 0.05)(p, y) == 2_000
    assert detectors._windows(detectors._ece, 0.9)(p, y) is None
    assert detectors._ece(p[1_000:], y[1_000:]) == pytest.approx(0.8)
    # Ten groups of 200 rows with 160 successes expected, and none seen.
    assert detectors._hosmer_lemeshow(p[1_000:], y[1_000:]) == pytest.approx(10 * 160**2 / 32)


def rows(detector: str, alarms: dict[str, float], delay: float) -> list[Row]:
    nulls = [Row(detector, kind, 100, alarms.get(kind, 0.0)) for kind in NULLS]
    return nulls + [Row(detector, kind, 100, 0.0, delay, 1.0) for kind in DRIFTS]


def test_verdict_compares_detectors_that_hold_alpha():
    ours = rows(OURS, {}, 900)
    quick_and_wrong = rows("wrong", {"covariate shift": 0.3}, 10)
    good_if_exact = rows("exact", {"tolerated": 1.0}, 800)
    slow = rows("slow", {"calibrated": 0.08}, 1_000)
    without = rows(EXACT, {"tolerated": 1.0}, 850)
    every = [*ours, *without, *quick_and_wrong, *good_if_exact, *slow]
    result = verdict(every)
    assert result.holding == [OURS, "slow"]
    assert set(result.rivals.values()) == {"slow"}
    assert (result.no_slower, result.quicker, result.met) == (4, 4, True)
    exact = verdict(every, everywhere=False)
    assert exact.detector == EXACT
    assert exact.holding == [OURS, EXACT, "exact", "slow"]
    assert set(exact.rivals.values()) == {"exact"}
    assert (exact.no_slower, exact.met) == (0, False)
    assert not verdict([*rows(OURS, {"delayed": 0.5}, 900), *slow]).met
    alone = verdict(ours)
    assert (set(alone.rivals.values()), alone.met) == ({None}, True)


def test_alpha_is_judged_by_a_binomial_test():
    assert Row("x", "calibrated", 200, 0.05).holds
    assert Row("x", "calibrated", 200, 0.095).holds
    assert not Row("x", "calibrated", 200, 0.12).holds


def test_interval_truth_is_that_of_many_rows():
    edges = np.arange(1, 15) / 15
    true = intervals._true("Beta(8, 1)", "slope .7", edges)
    p = intervals.LAWS["Beta(8, 1)"].rvs(400_000, random_state=np.random.default_rng(0))
    gap = intervals.TRUTHS["slope .7"](p) - p
    where = np.searchsorted(edges, p, side="right")
    sums = np.bincount(where, gap, 15)
    assert true["ece"] == pytest.approx(np.abs(sums).sum() / len(p), rel=0.01)
    squares = sums**2 / np.maximum(np.bincount(where, minlength=15), 1)
    assert true["ce"] == pytest.approx(np.sqrt(squares.sum() / len(p)), rel=0.01)
    (interval, *_) = intervals._measured("Beta(8, 1)", "calibrated", 300, "labelled", 3)
    assert interval.coverage in (0, 1 / 3, 2 / 3, 1)


def test_flags_detect_selection():
    flags_of_four = flags(4)
    assert flags_of_four["all errors, 80% of the rest"] >= 0.75
    assert flags_of_four["the less sure more"] == 1
    assert flags_of_four["every third"] <= 0.25
