"""The comparison of scores: error rates, power, and saved state."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from recalib.drift import ScoreTest
from recalib.errors import InputError
from tests.draws import few_or_many

Values = NDArray[np.float64]


def scores(rng: np.random.Generator, rows: int, slope: float) -> tuple[Values, Values]:
    """Return Brier scores of overconfident probabilities and of the true probabilities."""
    odds = rng.normal(1.5, 1.5, rows)
    p, truth = 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(-slope * odds))
    y = rng.random(rows) < truth
    return 2 * (p - y) ** 2, 2 * (truth - y) ** 2


def test_evidence_equals_its_definition():
    rng = np.random.default_rng(0)
    champion, candidate = scores(rng, 300, 0.7)
    test = ScoreTest(min_gain=0.01)
    test.update(champion, candidate)
    d = champion - candidate
    stakes = [0.9 * 0.5**j for j in range(6)]
    better = np.mean([math.prod(1 + s / 2.0 * difference for difference in d) for s in stakes])
    worse = np.mean(
        [math.prod(1 + s / 2.01 * (0.01 - difference) for difference in d) for s in stakes]
    )
    assert test.log_evidence == pytest.approx(math.log(better))
    assert test.log_evidence_against == pytest.approx(math.log(worse))
    assert test.mean_difference == pytest.approx(d.mean())
    assert test.standard_error == pytest.approx(d.std(ddof=1) / math.sqrt(300))


@few_or_many(60, 400)
def test_an_equally_good_candidate_is_rarely_called_better(draws):
    """Streams of 4,000 labels with expected difference 0, tested after every label.

    At α = 0.1, a tenth is expected at most; as many as fail have a probability below 0.001.
    """
    called = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, 1])
        # Two forecasts with the same error in opposite directions.
        y = rng.random(4_000) < 0.7
        champion, candidate = 2 * (0.75 - y) ** 2, 2 * (0.65 - y) ** 2
        test = ScoreTest(alpha=0.1, max_labels=10_000)
        test.update(champion, candidate)
        called += test.verdict == "better"
    assert called <= scipy.stats.binom.isf(1e-3, draws, 0.1)


@few_or_many(60, 300)
def test_a_candidate_with_the_minimum_gain_is_rarely_called_no_better(draws):
    """The expected difference is exactly `min_gain`, the boundary of the second hypothesis."""
    called = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, 2])
        y = rng.random(4_000) < 0.7
        champion, candidate = 2 * (0.8 - y) ** 2, 2 * (0.7 - y) ** 2
        test = ScoreTest(alpha=0.1, min_gain=0.02, max_labels=10_000)
        test._for -= 1e9  # only the second test can decide
        test.update(champion, candidate)
        called += test.verdict == "no better"
    assert called <= scipy.stats.binom.isf(1e-3, draws, 0.1)


def test_better_and_worse_candidates_get_the_correct_verdict():
    decided = []
    for seed in range(20):
        rng = np.random.default_rng([seed, 3])
        champion, candidate = scores(rng, 20_000, 0.6)
        test, reverse = ScoreTest(), ScoreTest()
        test.update(champion, candidate)
        reverse.update(candidate, champion)
        assert test.verdict == "better"
        assert reverse.verdict == "no better"
        assert test.decided_at is not None
        decided.append(test.decided_at)
    assert np.median(decided) < 5_000


def test_an_identical_candidate_is_no_better_after_max_labels():
    """Without a difference there is no evidence in either direction."""
    test = ScoreTest(max_labels=1_000)
    test.update(np.full(999, 0.5), np.full(999, 0.5))
    assert test.verdict is None
    assert test.log_evidence == pytest.approx(0, abs=1e-9)
    test.update([0.5, 0.5], [0.5, 0.5])
    assert (test.verdict, test.decided_at) == ("no better", 1_000)


def test_the_first_verdict_is_final():
    test = ScoreTest(bound=1.0)
    test.update(np.ones(100), np.zeros(100))
    decided_at = test.decided_at
    assert test.verdict == "better"
    test.update(np.zeros(5_000), np.ones(5_000))
    assert (test.verdict, test.decided_at) == ("better", decided_at)


def test_update_sizes_and_a_saved_state_make_no_difference():
    rng = np.random.default_rng(4)
    champion, candidate = scores(rng, 3_000, 0.8)
    uninterrupted, parts = ScoreTest(), ScoreTest()
    uninterrupted.update(champion, candidate)
    for start in range(0, 3_000, 171):
        parts.update(champion[start : start + 171], candidate[start : start + 171])
        restored = ScoreTest()
        restored.restore(json.loads(json.dumps(parts.state())))
        parts = restored
    assert parts.log_evidence == pytest.approx(uninterrupted.log_evidence)
    assert parts.log_evidence_against == pytest.approx(uninterrupted.log_evidence_against)
    assert (parts.verdict, parts.decided_at) == (uninterrupted.verdict, uninterrupted.decided_at)


@pytest.mark.parametrize(
    ("champion", "candidate", "field"),
    [
        ([2.1], [0.0], "champion"),
        ([0.0], [-0.1], "candidate"),
        ([0.0], [float("nan")], "candidate"),
        ([0.0, 1.0], [0.0], "candidate"),
        ([[0.0]], [[0.0]], "champion"),
    ],
)
def test_bad_scores_are_rejected_and_change_nothing(champion, candidate, field):
    test = ScoreTest()
    with pytest.raises(InputError) as excinfo:
        test.update(champion, candidate)
    assert excinfo.value.field == field
    assert test.labels == 0
    assert test.mean_difference is None


@pytest.mark.parametrize(
    "options", [{"alpha": 0.0}, {"bound": 0.0}, {"min_gain": 0.0}, {"max_labels": 0}]
)
def test_bad_options_are_rejected(options):
    with pytest.raises(InputError):
        ScoreTest(**options)
