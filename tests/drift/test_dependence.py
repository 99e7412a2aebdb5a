"""The test whether neighbouring rows depend on each other."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from recalib.drift import Cohort, Monitor
from recalib.drift.dependence import DependenceTest

ROWS = 4_096


def stream(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities and outcomes in the order of time."""
    p = np.maximum(*(lambda q: (q, 1 - q))(1 / (1 + np.exp(-rng.normal(1.5, 1.5, ROWS)))))
    time = np.arange(ROWS) / ROWS
    if kind == "three scores":
        p = rng.choice([0.6, 0.8, 0.95], ROWS)
    elif kind == "rare errors":
        p = 1 - 0.02 * rng.random(ROWS)
    changes = {"wrong": np.full(ROWS, 0.2), "step": 0.2 * (time > 0.5), "slope": 0.2 * time}
    changes["early step"] = 0.2 * (time > 0.3)
    y = rng.random(ROWS) < p - changes.get(kind, np.zeros(ROWS))
    if kind.startswith("copies"):
        p, y = (np.repeat(column, int(kind[-1]))[:ROWS] for column in (p, y))
    elif kind == "weak days":
        y = rng.random(ROWS) < p + np.repeat(rng.choice([-0.09, 0.06], 18), 240)[:ROWS]
    elif kind == "sessions":
        y = rng.random(ROWS) < p + np.repeat(rng.choice([-0.12, 0.04], ROWS // 32), 32)
    return p, y.astype(np.float64)


def warned(kind: str, seed: int) -> bool:
    """Return whether any look finds dependence."""
    p, y = stream(kind, np.random.default_rng(seed))
    test, any_warning = DependenceTest(), False
    for part in np.array_split(np.arange(len(p)), 20):
        test.add(part * 86_400 / 240, p[part], y[part] - p[part])
        any_warning |= test.result is not None and test.result.is_significant
    return any_warning


@pytest.mark.parametrize(
    "kind", ["calibrated", "three scores", "rare errors", "wrong", "step", "early step", "slope"]
)
def test_errors_that_change_with_time_or_probability_are_no_dependence(kind):
    """At most 5% false warnings; of 40 streams, 6 or more then have a probability of 1.4%."""
    assert sum(warned(kind, seed) for seed in range(40)) < 6


@pytest.mark.parametrize("kind", ["copies 2", "copies 5", "sessions", "weak days"])
def test_rows_that_are_right_or_wrong_together_are_found(kind):
    assert sum(warned(kind, seed) for seed in range(40)) >= 38


def test_the_mean_of_a_pair_is_1_over_all_orders_of_its_rows():
    """Whatever the rows: here the exact mean over all halves of 8, by the formula of a pair."""
    rows = np.array([0.1, 0.1, -0.9, 0.3, -0.7, 0.05, 0.2, -0.8])
    variance = rows.var(ddof=1)
    halves = itertools.combinations(range(8), 4)
    values = [(2 * rows[list(half)].sum() - rows.sum()) ** 2 / (8 * variance) for half in halves]
    assert np.mean(values) == pytest.approx(1)


def test_a_pair_equals_its_formula_for_any_parts_and_after_a_restart():
    """Of blocks of rows, and of days with 40, 35 and 25 rows."""
    residuals, days = np.random.default_rng(0).normal(size=100), np.repeat([5, 6, 8], [40, 35, 25])
    whole, parts = DependenceTest(), DependenceTest()
    whole._bins[0] = parts._bins[0] = 1e12  # no centring
    half = np.full(100, 0.5)
    whole.add(days * 86_400.0, half, residuals)
    whole.add(np.array([9 * 86_400.0]), half[:1], residuals[:1])
    for start in range(0, 100, 7):
        part = residuals[start : start + 7]
        parts.add(days[start : start + 7] * 86_400.0, half[: len(part)], part)
        restored = DependenceTest()
        restored.restore(json.loads(json.dumps(parts.state())))
        parts = restored
    parts.add(np.array([9 * 86_400.0]), half[:1], residuals[:1])
    rows, of_days = whole._ladders
    for ladder, same in zip(whole._ladders, parts._ladders, strict=True):
        np.testing.assert_allclose(ladder._pairs, same._pairs)

    def square(*ends: int) -> float:
        first, second = residuals[ends[0] : ends[1]], residuals[ends[1] : ends[2]]
        spread = residuals[ends[0] : ends[2]].var(ddof=1) * (1 / len(first) + 1 / len(second))
        return (first.mean() - second.mean()) ** 2 / spread

    c = [square(start, start + 16, start + 32) for start in (0, 32, 64)]
    assert rows._pairs[0] == pytest.approx([3, sum(c), *sorted(c)[:0:-1], 96])
    assert rows._pairs[1, :2] == pytest.approx([1, square(0, 32, 64)])
    assert of_days._pairs[0] == pytest.approx([1, square(0, 40, 75), square(0, 40, 75), 0, 75])


def test_a_state_of_an_earlier_version_keeps_its_result_and_begins_again():
    test = DependenceTest()
    test.restore({"labels": 9_000, "look": 5, "result": [2.5, 256, True]})
    assert test.result == (2.5, 256, True)
    p, y = stream("calibrated", np.random.default_rng(0))
    test.add(np.zeros(ROWS), p, y - p)
    assert not test.result.is_significant


def test_a_monitor_names_dependence_until_rows_have_groups():
    rng = np.random.default_rng(0)
    p, y = stream("copies 5", rng)
    for groups in (None, np.arange(ROWS) // 5 + 1):
        monitor = Monitor([0.7, 0.9])
        traffic = np.bincount(np.searchsorted([0.7, 0.9], p, side="right"))
        monitor.add(0, 1, Cohort(traffic, p, y, times=np.arange(ROWS) / ROWS, groups=groups))
        status = monitor.assess(1)
        assert status.evidence.dependent == (groups is None)
        assert ("give such rows a `group`" in status.reason) == (groups is None)
    restored = Monitor([0.7, 0.9])
    restored.restore(json.loads(json.dumps(monitor.state())))
    assert restored == monitor
