"""The count of rows that repeat a row close by."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from recalib.drift import Cohort, Monitor
from recalib.drift.repeats import RepeatCount, _chance_of_close

ROWS = 8_192


def scores(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return probabilities in the order of time."""
    p = 1 / (1 + np.exp(-np.abs(rng.normal(1.5, 1.5, ROWS))))
    if kind.startswith("rounded"):
        return np.round(p, int(kind[-1]))
    if kind == "saturated":
        return np.where(p > 0.9, 1.0, p)
    if kind == "by day":  # rounded, and higher on some days
        return np.round(np.clip(p - np.repeat(rng.random(32) / 4, ROWS // 32), 0.5, 1), 3)
    if kind == "retries":  # 3% of rows, up to ten rows later
        at = rng.choice(ROWS - 10, ROWS // 33, replace=False)
        p[at + rng.integers(1, 11, len(at))] = p[at]
    return p


def reported(kind: str, seed: int) -> bool:
    count, reported = RepeatCount(), False
    for part in np.array_split(scores(kind, np.random.default_rng(seed)), 40):
        count.add(part)
        reported |= count.result is not None and count.result.is_significant
    return reported


@pytest.mark.parametrize("kind", ["rounded 1", "rounded 2", "rounded 3", "saturated", "by day"])
def test_discrete_scores_are_no_repeats(kind):
    """At most 1% false reports; of 20 streams, 3 or more then have a probability of 0.1%."""
    assert sum(reported(kind, seed) for seed in range(20)) < 3


def test_retries_are_found():
    assert all(reported("retries", seed) for seed in range(20))


def test_the_chance_of_close_rows_is_their_share_of_positions(monkeypatch):
    """Of all subsets of 12 rows with 4 as the span."""
    monkeypatch.setattr("recalib.drift.repeats._ROWS", 12)
    monkeypatch.setattr("recalib.drift.repeats._SPAN", 4)
    for size in (2, 3, 4, 5):
        spans = [max(rows) - min(rows) for rows in itertools.combinations(range(12), size)]
        expected = np.mean(np.array(spans) < 4)
        assert _chance_of_close(np.array([size])) == pytest.approx([expected])


def test_counts_are_those_of_any_parts_and_after_a_restart_and_end_with_groups():
    p = scores("retries", np.random.default_rng(0))
    whole, parts = RepeatCount(), RepeatCount()
    whole.add(p)
    for part in np.array_split(p, 9):
        parts.add(part)
        restored = RepeatCount()
        restored.restore(json.loads(json.dumps(parts.state())))
        parts = restored
    assert parts.state() == whole.state()
    assert whole.result.rows == 4_096
    assert 90 < whole.result.repeats < 150
    whole.add(scores("calibrated", np.random.default_rng(1))[:4_096])
    assert not whole.result.is_significant


def test_a_monitor_names_repeats_without_groups():
    p = scores("retries", np.random.default_rng(0))
    y = np.random.default_rng(1).random(ROWS) < p
    _, groups = np.unique(p, return_inverse=True)
    for numbers in (None, groups + 1):
        monitor = Monitor([0.7, 0.9])
        traffic = np.bincount(np.searchsorted([0.7, 0.9], p, side="right"))
        monitor.add(0, 1, Cohort(traffic, p, y, times=np.arange(ROWS) / ROWS, groups=numbers))
        status = monitor.assess(1)
        assert status.evidence.has_repeats == (numbers is None)
        assert ("give retries and copies a `group`" in status.reason) == (numbers is None)
