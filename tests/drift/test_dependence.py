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
    y = rng.random(ROWS) < p - changes.get(kind, np.zeros(ROWS))
    if kind.startswith("copies"):
        p, y = (np.repeat(column, int(kind[-1]))[:ROWS] for column in (p, y))
    elif kind == "sessions":
        y = rng.random(ROWS) < p + np.repeat(rng.choice([-0.12, 0.04], ROWS // 32), 32)
    return p, y.astype(np.float64)


def warned(kind: str, seed: int) -> bool:
    """Return whether any look finds dependence."""
    p, y = stream(kind, np.random.default_rng(seed))
    test, any_warning = DependenceTest(), False
    for part in np.array_split(np.arange(len(p)), 20):
        test.add(p[part], y[part] - p[part])
        any_warning |= test.result is not None and test.result.is_significant
    return any_warning


@pytest.mark.parametrize(
    "kind", ["calibrated", "three scores", "rare errors", "wrong", "step", "slope"]
)
def test_errors_that_change_with_time_or_probability_are_no_dependence(kind):
    """At most 5% false warnings; of 40 streams, 6 or more then have a probability of 1.4%."""
    assert sum(warned(kind, seed) for seed in range(40)) < 6


@pytest.mark.parametrize("kind", ["copies 2", "copies 5", "sessions"])
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
    residuals = np.random.default_rng(0).normal(size=100)
    whole, parts = DependenceTest(), DependenceTest()
    whole._bins[0] = parts._bins[0] = 1e12  # no centring
    whole.add(np.full(100, 0.5), residuals)
    for start in range(0, 100, 7):
        parts.add(np.full(len(residuals[start : start + 7]), 0.5), residuals[start : start + 7])
        restored = DependenceTest()
        restored.restore(json.loads(json.dumps(parts.state())))
        parts = restored
    np.testing.assert_allclose(parts._pairs, whole._pairs)
    first, second, variance = residuals[:16], residuals[16:32], residuals[:32].var(ddof=1)
    other = residuals[32:48], residuals[48:64], residuals[32:64].var(ddof=1)
    third = residuals[64:80], residuals[80:96], residuals[64:96].var(ddof=1)
    c = [
        (a.sum() - b.sum()) ** 2 / (32 * v) for a, b, v in ((first, second, variance), other, third)
    ]
    assert whole._pairs[0] == pytest.approx([3, sum(c), max(c)])
    joined = residuals[:32].sum() - residuals[32:64].sum()
    assert whole._pairs[1, 1] == pytest.approx(joined**2 / (64 * residuals[:64].var(ddof=1)))


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
