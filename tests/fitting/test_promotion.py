"""The promotion rule: one threshold for repeated refits, a pool of the last ones, more rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from recalib.fitting.promotion import (
    MARGIN,
    MAX_POOLED,
    MIN_GROWTH,
    POOLED_THRESHOLD,
    THRESHOLD,
    Gain,
    PromotionDecision,
    decide,
    pool,
)


def outcome(gain: Gain, *earlier: Gain, growth: float | None = None) -> PromotionDecision:
    return decide("vector", "vector", gain, champion_nll=0.5, earlier=earlier, growth=growth)


def z(standard_errors: float, rows: int = 1_000, error: float = 0.01) -> Gain:
    return Gain(rows, standard_errors * error, error)


def test_threshold_is_the_boundary() -> None:
    assert outcome(z(THRESHOLD + 0.01)).rule == "gain"
    assert outcome(z(THRESHOLD - 0.01)).rule is None
    assert outcome(z(-9)).rule is None
    assert outcome(Gain(10, 0.0, 0.0)).rule is None
    assert outcome(Gain(10, 0.1, 0.0)).rule == "gain"


def test_reason_names_gain_and_threshold() -> None:
    assert outcome(z(4)).reason == (
        "vector beats vector: NLL lower by 0.04 ± 0.01, 4.0 standard errors "
        f"(threshold {THRESHOLD:.2f}) on held-out folds"
    )
    reason = outcome(z(-1), z(2)).reason
    assert reason.startswith(
        "vector does not beat vector: NLL higher by 0.01 ± 0.01, -1.0 standard"
    )
    assert "; over the last 2 refits NLL lower by 0.005 ± 0.0071, 0.7 standard errors" in reason


def test_pool_is_the_mean_over_all_rows() -> None:
    """The same as the mean and the error of the rows together, of which half are in each."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(0.1, 1.0, 40_000), rng.normal(0.1, 3.0, 10_000)]
    gains = [Gain(len(x), x.mean(), x.std(ddof=1) / math.sqrt(len(x))) for x in parts]
    together = np.concatenate(parts)
    pooled = pool(gains)
    assert pooled.rows == 50_000
    assert pooled.mean == pytest.approx(together.mean(), rel=1e-12)
    assert pooled.standard_error == pytest.approx(together.std() / math.sqrt(50_000), rel=0.01)


def test_pool_has_the_last_five_comparisons() -> None:
    """A gain of two standard errors each is proven by five comparisons, not by two."""
    assert outcome(z(2), z(2)).rule is None
    decision = outcome(z(2), *[z(2)] * 4)
    assert decision.rule == "pooled gain"
    assert decision.pooled is not None
    assert decision.pooled.refits == 5
    assert "over the last 5 refits NLL lower by 0.02" in decision.reason
    longer = outcome(z(2), *[z(-99)] * 9, *[z(2)] * 4)
    assert longer.rule == "pooled gain"
    assert longer.pooled == decision.pooled


def test_four_times_the_rows_take_over_when_no_worse() -> None:
    margin = MARGIN * 0.5
    even = Gain(5_000, 0.0, 0.9 * margin / THRESHOLD)
    assert outcome(even).rule is None
    assert outcome(even, growth=MIN_GROWTH - 0.1).rule is None
    decision = outcome(even, growth=MIN_GROWTH)
    assert decision.rule == "more rows"
    assert decision.reason.startswith("vector replaces vector: fitted to 4 times the rows, and no ")
    assert f"worse by {margin:.2g} (1% of the NLL): NLL lower by 0 ±" in decision.reason
    assert outcome(Gain(5_000, -0.2 * margin, even.standard_error), growth=4.0).rule is None
    assert outcome(Gain(500, 0.0, 1.1 * margin / THRESHOLD), growth=4.0).rule is None


def first_promotions(z: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of the refit of each run that is promoted first, or R, of (runs, R)."""
    promoted = z > THRESHOLD * errors
    for refit in range(1, z.shape[1]):
        block = slice(max(refit + 1 - MAX_POOLED, 0), refit + 1)
        noise = np.sqrt((errors[:, block] ** 2).sum(axis=1))
        promoted[:, refit] |= z[:, block].sum(axis=1) > POOLED_THRESHOLD * noise
    return np.where(promoted.any(axis=1), promoted.argmax(axis=1), z.shape[1])


def test_many_runs_at_once_and_the_rule_agree() -> None:
    rng = np.random.default_rng(2)
    means, errors = rng.normal(0.9, 1, (60, 8)), rng.uniform(0.8, 1.2, (60, 8))
    first = first_promotions(means, errors)
    assert 0 < np.mean(first < 8) < 1
    for run in range(60):
        gains = [Gain(100, *pair) for pair in zip(means[run], errors[run], strict=True)]
        rules = [outcome(gain, *gains[:i]).rule for i, gain in enumerate(gains)]
        assert next((i for i, rule in enumerate(rules) if rule), 8) == first[run]


def test_twenty_quiet_refits_rarely_promote() -> None:
    """At most 5% of runs, and a gain of four standard errors at once in 85%."""
    runs = 20_000
    quiet = np.random.default_rng(3).standard_normal((runs, 20))
    promoted = int((first_promotions(quiet, np.ones_like(quiet)) < 20).sum())
    assert scipy.stats.binomtest(promoted, runs).proportion_ci().high < 0.05
    assert scipy.stats.norm.sf(THRESHOLD - 4) > 0.85
