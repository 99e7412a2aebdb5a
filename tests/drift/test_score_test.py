"""The comparison of scores: its guarantee both ways, its power, and what it remembers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.drift import ScoreTest
from recalib.errors import InputError

Values = NDArray[np.float64]


def scores(rng: np.random.Generator, rows: int, slope: float) -> tuple[Values, Values]:
    """Return Brier scores of confidences that are too sure by `slope`, and of repaired ones."""
    odds = rng.normal(1.5, 1.5, rows)
    p, truth = 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(-slope * odds))
    y = rng.random(rows) < truth
    return 2 * (p - y) ** 2, 2 * (truth - y) ** 2


def test_evidence_is_its_definition():
    rng = np.random.default_rng(0)
    champion, candidate = scores(rng, 300, 0.7)
    test = ScoreTest(least_gain=0.01)
    test.update(champion, candidate)
    d = champion - candidate
    stakes = [0.9 * 0.5**j for j in range(6)]
    better = np.mean([math.prod(1 + s / 2.0 * one for one in d) for s in stakes])
    worse = np.mean([math.prod(1 + s / 2.01 * (0.01 - one) for one in d) for s in stakes])
    assert test.log_evidence == pytest.approx(math.log(better))
    assert test.log_evidence_against == pytest.approx(math.log(worse))
    assert test.mean_difference == pytest.approx(d.mean())
    assert test.standard_error == pytest.approx(d.std(ddof=1) / math.sqrt(300))


def test_a_candidate_that_is_as_good_is_seldom_called_better():
    """400 streams of 4,000 labels whose expected difference is 0, looked at after every label.

    At α = .1, 40 would be allowed; more than 60 come less than once in a thousand.
    """
    called = 0
    for seed in range(400):
        rng = np.random.default_rng([seed, 1])
        # Scores of two forecasts that are as far off, to either side.
        y = rng.random(4_000) < 0.7
        champion, candidate = 2 * (0.75 - y) ** 2, 2 * (0.65 - y) ** 2
        test = ScoreTest(alpha=0.1, most_labels=10_000)
        test.update(champion, candidate)
        called += test.verdict == "better"
    assert called <= 60


def test_a_candidate_that_gains_the_least_gain_is_seldom_called_no_better():
    """Expected difference exactly the least gain: the other hypothesis at its edge."""
    called = 0
    for seed in range(300):
        rng = np.random.default_rng([seed, 2])
        y = rng.random(4_000) < 0.7
        champion, candidate = 2 * (0.8 - y) ** 2, 2 * (0.7 - y) ** 2
        test = ScoreTest(alpha=0.1, least_gain=0.02, most_labels=10_000)
        test._for -= 1e9  # so that only the other test can decide
        test.update(champion, candidate)
        called += test.verdict == "no better"
    assert called <= 47  # 30 allowed, and three standard errors


def test_a_better_candidate_is_called_better_and_a_worse_one_not():
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


def test_a_candidate_like_the_champion_is_dropped_at_last():
    """No difference at all: no evidence in either direction until the labels are used up."""
    test = ScoreTest(most_labels=1_000)
    test.update(np.full(999, 0.5), np.full(999, 0.5))
    assert test.verdict is None
    assert test.log_evidence == pytest.approx(0, abs=1e-9)
    test.update([0.5, 0.5], [0.5, 0.5])
    assert (test.verdict, test.decided_at) == ("no better", 1_000)


def test_a_verdict_stands():
    test = ScoreTest(bound=1.0)
    test.update(np.ones(100), np.zeros(100))
    decided_at = test.decided_at
    assert test.verdict == "better"
    test.update(np.zeros(5_000), np.ones(5_000))
    assert (test.verdict, test.decided_at) == ("better", decided_at)


def test_parts_and_a_saved_state_make_no_difference():
    rng = np.random.default_rng(4)
    champion, candidate = scores(rng, 3_000, 0.8)
    whole, parts = ScoreTest(), ScoreTest()
    whole.update(champion, candidate)
    for start in range(0, 3_000, 171):
        parts.update(champion[start : start + 171], candidate[start : start + 171])
        again = ScoreTest()
        again.restore(json.loads(json.dumps(parts.state())))
        parts = again
    assert parts.log_evidence == pytest.approx(whole.log_evidence)
    assert parts.log_evidence_against == pytest.approx(whole.log_evidence_against)
    assert (parts.verdict, parts.decided_at) == (whole.verdict, whole.decided_at)


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
def test_bad_scores_are_refused_and_none_taken(champion, candidate, field):
    test = ScoreTest()
    with pytest.raises(InputError) as refused:
        test.update(champion, candidate)
    assert refused.value.field == field
    assert test.labels == 0
    assert test.mean_difference is None


@pytest.mark.parametrize(
    "options", [{"alpha": 0.0}, {"bound": 0.0}, {"least_gain": 0.0}, {"most_labels": 0}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(InputError):
        ScoreTest(**options)
