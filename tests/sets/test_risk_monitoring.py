"""The risk among accepted rows as a stream of the monitor and of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import recalib
from recalib.drift import CalibrationTest, Cohort, Monitor, MonitorOptions
from recalib.drift.monitor import SegmentStatus
from tests.fitting.conftest import draw

_OPTIONS = MonitorOptions(accepted_risk=0.1)


def _status(right: NDArray[Any], options: MonitorOptions = _OPTIONS) -> SegmentStatus:
    """Return the status of the stream after cohorts of 500 accepted rows."""
    monitor, rng = Monitor([], options=options), np.random.default_rng(0)
    for number, part in enumerate(np.split(right, len(right) // 500)):
        all_rows = Cohort([500], np.full(500, 0.5), rng.random(500) < 0.5)
        accepted = Cohort([500], np.full(500, 0.9), part)
        monitor.add(number, number + 1, all_rows, promised={"(accepted)": accepted})
    restored = Monitor([], options=options)
    restored.restore(monitor.state())
    assert restored == monitor
    return monitor.assess(len(right) / 500).segments["(accepted)"]


def test_broken_promise_is_stale() -> None:
    status = _status(np.random.default_rng(1).random(4_000) < 0.85)
    assert status.state == "stale"
    assert status.reason.startswith("the accuracy of accepted rows is below the promised")
    assert status.evidence.target == "accepted"
    assert status.evidence.expected is None


def test_fewer_errors_than_promised_are_fresh() -> None:
    """97% right where 90% are promised: an error of two sides would be stale."""
    right = np.random.default_rng(2).random(4_000) < 0.97
    status = _status(right)
    assert status.state == "fresh"
    assert status.evidence.ece == 0.0
    two_sided = CalibrationTest(0.025, 0.0)
    two_sided.update(np.full(4_000, 0.9), right)
    assert two_sided.rejected


def test_false_alarms_are_within_alpha() -> None:
    """Of 40 streams at the bound, at α = 5%: at most 5, the binomial's 97.5% quantile."""
    options = MonitorOptions(accepted_risk=0.1, alpha=0.1)
    right = np.random.default_rng(3).random((40, 1_000)) < 0.9
    assert sum(_status(row, options).state == "stale" for row in right) <= 5


@pytest.mark.parametrize("truth", [0.9, 0.95, 1.0])
def test_bet_has_a_mean_of_at_most_1(truth: float) -> None:
    """For each probability from p on, and each q: it is linear in the probability."""
    test, p = CalibrationTest(0.05, 0.0, at_least=True), np.full(99, 0.9)
    q = np.linspace(0.01, 0.99, 99)[None]
    right, wrong = (test._gains(q, p, np.full(99, y)) for y in (1.0, 0.0))
    assert np.max(truth * right + (1 - truth) * wrong) <= 1 + 1e-12
    assert np.max(0.8 * right + 0.2 * wrong) > 1.03


def test_replay_monitors_accepted_rows() -> None:
    """Rejected rows become wrong first, which is no evidence; then accepted ones do."""
    calibrator = recalib.fit(*draw(6_000, 5, 1.5), max_risk=0.1)
    logits, labels = draw(6_000, 5, 1.5, seed=2)
    p = calibrator.predict(logits)
    accepted, late = calibrator.is_accepted(logits), np.arange(6_000) >= 2_000
    options: dict[str, Any] = {"time": np.arange(6_000.0), "calibrator": calibrator, "cohort": 500}

    def last(worse: NDArray[np.bool_]) -> SegmentStatus:
        moved = np.where(worse & late, p.argmin(axis=1), labels)
        replayed = recalib.monitor(probabilities=p, label=moved, **options)
        return replayed.events[-1].status.segments["(accepted)"]

    assert last(~accepted).state != "stale"
    rng = np.random.default_rng(0)
    status = last(accepted & (rng.random(6_000) < 0.2))
    assert status.state == "stale"
    assert 1_500 < (status.onset or 0) < 3_000
    assert status.evidence.confidence == pytest.approx(0.9)
