"""Meta-Cal: the stated bounds hold in at least 95% of simulated data sets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats

from recalib.fitting.fit import fit
from recalib.fitting.log_odds import Groups, group_by_odds
from recalib.fitting.meta_cal import REJECT_ALL, accuracy_threshold, miscoverage_threshold
from recalib.fitting.problem import Problem
from recalib.fitting.solvers import solve
from recalib.maps import MAPS
from recalib.objectives import OBJECTIVES
from tests.fitting.conftest import draw

RUNS = 200


def scores(logits: np.ndarray, parameters: dict) -> np.ndarray:
    p = scipy.special.softmax(logits / parameters["ranking_temperature"], axis=1).max(axis=1)
    return scipy.special.logit(p)


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("meta_miscoverage", {"miscoverage": 0.05}, 300),
        ("meta_miscoverage", {"miscoverage": 0.2}, 100),
        ("meta_accuracy", {"accuracy": 0.9}, 600),
        ("meta_accuracy", {"accuracy": 0.85}, 300),
    ],
)
@pytest.mark.slow
def test_bounds_hold_in_95_percent_of_runs(name: str, options: dict, rows: int) -> None:
    """The bound holds on 10,000 new rows of the same distribution."""
    unseen, truth = draw(10_000, 4, 1.0, seed=10_000)
    right = unseen.argmax(axis=1) == truth
    successes = used = 0
    for seed in range(RUNS):
        the_map, nll = MAPS[name](**options), OBJECTIVES["nll"]()
        parameters = solve(Problem(the_map, nll, *draw(rows, 4, 1.0, seed=seed))).parameters
        accepted = scores(unseen, parameters) >= parameters["threshold"]
        if name == "meta_miscoverage":
            successes += (~accepted[right]).mean() <= options["miscoverage"]
            used += not accepted.all()
        else:
            successes += not accepted.any() or right[accepted].mean() >= options["accuracy"]
            used += accepted.any()
    assert successes / RUNS >= 0.95
    # The bounds must not hold trivially.
    assert used / RUNS >= 0.5


def test_miscoverage_quantile_matches_a_loop() -> None:
    rng = np.random.default_rng(0)
    odds, hits = np.sort(rng.normal(size=200)), rng.random(200) < 0.8
    groups = group_by_odds(odds, hits, np.ones(200))
    right, n = odds[hits], hits.sum()
    best = max(k for k in range(1, n) if scipy.stats.beta.cdf(0.1, k, n - k + 1) >= 0.95)
    threshold = miscoverage_threshold(groups, 0.1, 0.95)
    assert (right < threshold).sum() == best - 1


def test_accuracy_test_is_binomial() -> None:
    rng = np.random.default_rng(0)
    odds = np.sort(rng.normal(size=320) * 3)
    hits = rng.random(320) < scipy.special.expit(odds)
    threshold = accuracy_threshold(group_by_odds(odds, hits, np.ones(320)), 0.8, 0.95)
    passing = []
    for share in range(1, 17):
        top = hits[320 - 20 * share :]
        if scipy.stats.binom.cdf((~top).sum(), len(top), 0.2) <= 0.05 / 16:
            passing.append(20 * share)
    assert (odds >= threshold).sum() == max(passing)


def test_rejected_rows_are_uniform_and_others_are_tempered() -> None:
    logits, labels = draw(1000, 4, 2.0)
    logits[:, 3] = np.where(labels == 3, logits[:, 3], -np.inf)
    calibrator = fit(logits, labels, "meta_accuracy", accuracy=0.8)
    parameters = calibrator.parameters
    accepted = scores(logits, parameters) >= parameters["threshold"]
    assert 0 < accepted.sum() < 1000
    probabilities = calibrator.predict_float64(logits)
    np.testing.assert_allclose(
        probabilities[accepted],
        scipy.special.softmax(logits[accepted] / parameters["temperature"], axis=1),
        rtol=1e-9,
    )
    open_ = np.isfinite(logits[~accepted])
    np.testing.assert_allclose(
        probabilities[~accepted], open_ / open_.sum(axis=1, keepdims=True), rtol=1e-12
    )


def test_unreachable_bounds_are_reported() -> None:
    no_rows = Groups(np.zeros(1), np.ones(1), np.zeros(1))
    assert miscoverage_threshold(no_rows, 0.1, 0.95) == -REJECT_ALL
    assert accuracy_threshold(no_rows, 0.9, 0.95) == REJECT_ALL
    logits, labels = draw(10, 4, 2.0)
    for name, text in (("meta_miscoverage", "too few"), ("meta_accuracy", "all are refused")):
        assert any(text in warning for warning in fit(logits, labels, name).card.fit.warnings)
