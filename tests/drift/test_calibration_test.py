"""The sequential test: false alarm rate, power, and saved state."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.drift import Bettor, CalibrationTest, default_bettors
from recalib.drift.alternatives import alternatives, confidence_cells
from recalib.drift.bettors import BinnedBettor, MixtureBettor
from recalib.drift.calibration_test import _reserve
from recalib.drift.timed_test import TimedTest
from recalib.errors import InputError
from tests.draws import few_or_many

Values = NDArray[np.float64]


def confidences(rng: np.random.Generator, rows: int) -> Values:
    """Draw confidences that are mostly high, like those of a classifier."""
    p = 1 / (1 + np.exp(-rng.normal(1.5, 1.5, size=rows)))
    return np.maximum(p, 1 - p)


def outcomes(rng: np.random.Generator, truth: Values) -> Values:
    return (rng.random(len(truth)) < truth).astype(np.float64)


class ConstantBettor:
    """A bettor that always predicts `q`."""

    def __init__(self, q: float) -> None:
        self.q = q

    share = 1.0

    def predict(self, confidences: Values, correct: Values, sizes: Any = None) -> Values:
        return np.full(len(confidences), self.q)

    def start_block(self) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


@given(
    p=st.floats(0, 1),
    q=st.floats(1e-6, 1 - 1e-6),
    where=st.floats(-1, 1),
    tolerance=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_the_expected_gain_is_at_most_1_under_the_hypothesis(p, q, where, tolerance):
    """E[e] ≤ 1 for any truth within the tolerance of the confidence; the proof needs no more."""
    truth = min(max(p + where * tolerance, 0.0), 1.0)
    test = CalibrationTest(tolerance=tolerance, bettors=[ConstantBettor(q)])  # type: ignore[list-item]
    prediction = np.array([[q]])
    gains = {
        a: float(test._gains(prediction, np.array([p]), np.array([a]))[0, 0]) for a in (0.0, 1.0)
    }
    assert truth * gains[1.0] + (1 - truth) * gains[0.0] <= 1 + 1e-6


@pytest.mark.parametrize("tolerance", [0.0, 0.02])
@pytest.mark.parametrize("start", ["new", "after a drift", "at the end of a block"])
def test_evidence_is_a_supermartingale_by_exact_computation(tolerance, start):
    """E[E after a row | rows before] ≤ E for every history of seven rows and every tolerated truth.

    The mean is linear in the truth, so both edges of the tolerance suffice. The test is the one
    that serves: its bettors, their shares, the reserve of the stake, and the start of a block.
    """
    rng = np.random.default_rng(2)
    root = CalibrationTest(tolerance=tolerance)
    rows = {"new": 0, "after a drift": 700, "at the end of a block": 3 * 128 - 3}[start]
    if rows:
        p = confidences(rng, rows)
        root.update(p, outcomes(rng, drifted(p, "overconfident")))
    for grid in ((0.93, 0.55, 0.999, 0.93, 0.7, 1.0, 0.86), (0.03, 0.5, 0.0, 0.97, 0.2, 0.97, 0.8)):
        nodes = [root]
        for p in grid:
            children = []
            for node in nodes:
                pair = [copy.deepcopy(node) for _ in (0, 1)]
                for correct, child in enumerate(pair):
                    child.update(np.array([p]), np.array([float(correct)]))
                wrong, right = (np.exp(child.log_evidence - node.log_evidence) for child in pair)
                for truth in (max(p - tolerance, 0), min(p + tolerance, 1)):
                    assert truth * right + (1 - truth) * wrong <= 1 + 1e-8
                children += pair
            nodes = children
        assert len(nodes) == 2 ** len(grid)


@pytest.mark.parametrize("rows", [0, 700, 3 * 128 - 1])
def test_evidence_of_groups_is_a_supermartingale_for_any_dependence(rows):
    """E[E after a group | groups before] ≤ E if its rows are copies, exclusive, or independent.

    Each row alone is correct with a probability at an edge of the tolerance.
    """
    rng = np.random.default_rng(3)
    test, p = CalibrationTest(tolerance=0.02), np.array([0.6, 0.93, 0.3])
    before = confidences(rng, rows)
    test.update(before, outcomes(rng, drifted(before, "overconfident")))
    sides = np.array(list(itertools.product([0, 1], repeat=3)), np.float64)
    after = []
    for outcome in sides:
        child = copy.deepcopy(test)
        child.update(p, outcome, np.array([3]))
        after.append(np.exp(child.log_evidence - test.log_evidence))
    for edge in (-0.02, 0.02):
        truth = p + edge
        independent = np.prod(np.where(sides == 1, truth, 1 - truth), axis=1)
        u = (np.arange(100_000) + 0.5) / 100_000
        laws = {
            "copies": u[:, None] < truth,
            "exclusive": np.stack([u < truth[0], 1 - u < truth[1], u < truth[2]], axis=1),
        }
        assert independent @ after <= 1 + 1e-8
        for right in laws.values():
            assert np.mean(np.array(after)[right @ [4, 2, 1]]) <= 1 + 1e-8
    assert child.labels == rows + 1


def test_sizes_that_do_not_fit_the_rows_are_rejected():
    test = CalibrationTest()
    for sizes in ([2], [3, 0]):
        with pytest.raises(InputError) as excinfo:
            test.update(np.full(3, 0.6), np.ones(3), np.array(sizes))
        assert excinfo.value.field == "sizes"
    assert test == CalibrationTest()


@pytest.mark.parametrize("bettor", range(2))
def test_bettors_predict_before_they_see_labels(bettor):
    """The prediction for a row depends on the labels of earlier rows, and on no other."""
    rng = np.random.default_rng(0)
    p = confidences(rng, 100)
    y = outcomes(rng, drifted(p, "overconfident"))
    q = predict_in_blocks(default_bettors()[bettor], p, y)
    assert np.all((q > 0) & (q < 1))
    for row in (0, 40, 59):
        changed = y.copy()
        changed[row:] = 1 - changed[row:]
        other = predict_in_blocks(default_bettors()[bettor], p, changed)
        np.testing.assert_array_equal(other[: row + 1], q[: row + 1])
        assert np.any(other[row + 1 :] != q[row + 1 :])


def predict_in_blocks(bettor: Bettor, p: Values, y: Values) -> Values:
    """Return predictions for blocks of 20 rows, in calls of 10."""
    q = []
    for start in range(0, len(p), 10):
        if start % 20 == 0:
            bettor.start_block()
        q.append(bettor.predict(p[start : start + 10], y[start : start + 10]))
    return np.concatenate(q)


@pytest.mark.parametrize("least_rows", [5_000, 20])
def test_mixture_bettor_equals_a_slow_implementation(monkeypatch, least_rows):
    """The Shiryaev-Roberts sum, row by row and alternative by alternative."""
    monkeypatch.setattr(MixtureBettor, "least_rows", least_rows)
    rng = np.random.default_rng(1)
    p = confidences(rng, 60)
    y = outcomes(rng, drifted(p, "overconfident"))
    table = alternatives()
    odds = 0.1 * table.weights
    expected = []
    for row, (cell, confidence, correct) in enumerate(zip(confidence_cells(p), p, y, strict=True)):
        odds = odds + table.onsets[cell] / max(row, least_rows)
        expected.append(confidence + odds @ table.deviations[cell] / (1 + odds.sum()))
        odds = odds * np.exp(table.log_ratios[int(correct), cell])
    bettor = MixtureBettor()
    q = np.concatenate([bettor.predict(p[:25], y[:25]), bettor.predict(p[25:], y[25:])])
    np.testing.assert_allclose(q, np.clip(expected, 1e-6, 1 - 1e-6), rtol=1e-9)
    np.testing.assert_allclose(bettor.state()["odds"], odds, rtol=1e-9)


def test_mixture_bettor_follows_one_drift_after_another():
    """Limited odds let the opposite drift take over."""
    rng = np.random.default_rng(3)
    bettor, p = MixtureBettor(), np.full(128, 0.8)
    for truth, rows in ((0.65, 30), (0.92, 30)):
        for _ in range(rows):
            bettor.start_block()
            assert sum(bettor.state()["odds"]) <= 100 * (1 + 1e-12)
            q = bettor.predict(p, outcomes(rng, np.full(128, truth)))
        assert q[-1] == pytest.approx(truth, abs=0.03)


def test_binned_bettor_equals_a_slow_implementation():
    """Shrunk means of residuals of the rows of the bin in earlier blocks."""
    rng = np.random.default_rng(1)
    p = confidences(rng, 400)
    y = outcomes(rng, drifted(p, "overconfident"))
    q = predict_in_blocks(BinnedBettor(), p, y)
    for row in (0, 10, 159, 160, 399):
        block = row - row % 20
        at = np.flatnonzero((p[:block] * 15 // 1) == p[row] * 15 // 1)
        total, variance = np.sum((y - p)[at]), np.sum((p * (1 - p))[at])
        shrinkage = max(0.0, 1 - variance / total**2) if total else 0.0
        expected = p[row] + shrinkage * total / (len(at) + 50)
        assert q[row] == pytest.approx(np.clip(expected, 1e-6, 1 - 1e-6), rel=1e-9)


@pytest.mark.parametrize("offset", [0.02, -0.02])
@few_or_many(30, 100)
def test_false_alarms_stay_below_alpha(offset, draws):
    """Streams tested after every label, at both edges of the tolerance.

    At α = 0.1, a tenth is expected at most; as many as fail have a probability of 0.001.
    """
    rejected = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, 1])
        p = confidences(rng, 1_500)
        test = CalibrationTest(alpha=0.1, tolerance=0.02)
        test.update(p, outcomes(rng, np.clip(p + offset, 0, 1)))
        rejected += test.rejected
    assert rejected <= scipy.stats.binom.isf(1e-3, draws, 0.1)


@few_or_many(20, 100)
def test_labels_selected_by_confidence_raise_no_alarm(draws):
    """More labels for low confidences are no miscalibration."""
    rejected = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, 2])
        p = confidences(rng, 4_000)
        p = p[rng.random(len(p)) < 1.1 - p]
        test = CalibrationTest(alpha=0.1)
        test.update(p, outcomes(rng, p))
        rejected += test.rejected
    assert rejected <= scipy.stats.binom.isf(1e-3, draws, 0.1)


def drifted(p: Values, kind: str) -> Values:
    odds = np.log(p / (1 - p))
    if kind == "overconfident":
        return 1 / (1 + np.exp(-0.7 * odds))
    if kind == "prior shift":
        return 1 / (1 + np.exp(0.5 - odds))
    return np.where((p > 0.8) & (p < 0.9), p - 0.15, p)


@pytest.mark.parametrize("kind", ["overconfident", "prior shift", "local"])
@few_or_many(5, 20)
def test_drift_is_found_after_a_long_calibrated_time(kind, draws):
    """5,000 calibrated labels, then drift: past losses do not delay the detection."""
    delays = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 3])
        p = confidences(rng, 12_000)
        truth = p.copy()
        truth[5_000:] = drifted(p[5_000:], kind)
        test = CalibrationTest()
        test.update(p, outcomes(rng, truth))
        assert test.rejected_at is not None
        delays.append(test.rejected_at - 5_000)
    assert min(delays) > 0
    assert np.median(delays) < 4_000


@few_or_many(5, 10)
def test_suspicion_comes_before_rejection(draws):
    """On most streams that drift half-way, at level 10; never before the drift."""
    leads = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 5])
        p = confidences(rng, 8_000)
        truth = p.copy()
        truth[4_000:] = drifted(p[4_000:], "prior shift")
        correct = outcomes(rng, truth)
        test = CalibrationTest()
        suspected = None
        for start in range(0, 8_000, 50):
            test.update(p[start : start + 50], correct[start : start + 50])
            if suspected is None and test.suspicion >= np.log(10):
                suspected = start + 50
        assert test.rejected_at is not None
        assert suspected is not None
        assert suspected > 4_000
        leads.append(test.rejected_at - suspected)
    assert np.median(leads) > 0


def test_suspicion_does_not_grow_in_a_calibrated_time():
    """Bets that neither win nor lose do not add up over blocks."""
    rng = np.random.default_rng(8)
    p = confidences(rng, 60_000)
    test = CalibrationTest()
    assert test.suspicion == pytest.approx(0)
    test.update(p, outcomes(rng, p))
    assert 0 <= test.suspicion < np.log(10)
    certain = CalibrationTest()
    certain.update(np.ones(20_000), np.ones(20_000))
    assert certain.suspicion == pytest.approx(0)


def test_evidence_starts_at_1_and_is_always_finite():
    """Also for confidence 1 that is always wrong and confidence 0 that is always correct."""
    assert CalibrationTest().log_evidence == 0
    for tolerance in (0.0, 0.02):
        for confidence, correct in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            test = CalibrationTest(tolerance=tolerance)
            test.update(np.full(3_000, confidence), np.full(3_000, correct))
            assert np.isfinite(test.log_evidence)
            assert test.rejected == (confidence != correct)


def test_a_restored_test_continues_exactly():
    """Saved as JSON and restored in the middle, it ends with exactly the same evidence."""
    rng = np.random.default_rng(6)
    p = confidences(rng, 3_000)
    correct = outcomes(rng, drifted(p, "overconfident"))
    uninterrupted, first, second = CalibrationTest(), CalibrationTest(), CalibrationTest()
    for test in (uninterrupted, first):
        test.update(p[:1_234], correct[:1_234])
    second.restore(json.loads(json.dumps(first.state())))
    for test in (uninterrupted, second):
        test.update(p[1_234:], correct[1_234:])
    assert second.state() == uninterrupted.state()
    assert second.log_evidence == uninterrupted.log_evidence
    assert second.rejected_at == uninterrupted.rejected_at


@pytest.mark.parametrize(
    "bettors",
    [[MixtureBettor()], [BinnedBettor(), MixtureBettor()], [ConstantBettor(0.5), BinnedBettor()]],
)
def test_a_state_of_other_bettors_is_rejected(bettors):
    test = CalibrationTest()
    with pytest.raises(InputError):
        test.restore(CalibrationTest(bettors=bettors).state())
    assert (test.labels, test.log_evidence) == (0, 0)


def test_a_state_of_a_later_version_is_rejected():
    with pytest.raises(InputError, match="version"):
        CalibrationTest().restore({**CalibrationTest().state(), "version": 4})


def earlier_state(version: int, name: str) -> dict[str, Any]:
    """Return a state that was written before the bettors changed, and what it showed."""
    path = Path(__file__).with_name(f"states_of_version_{version}.json")
    saved: dict[str, Any] = json.loads(path.read_text())[name]
    return saved


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["calibrated", "drift"])
def test_a_state_of_an_earlier_version_continues_with_its_evidence(version, name):
    """Also in the middle of a block."""
    saved = earlier_state(version, name)
    test = CalibrationTest()
    test.restore(saved["state"])
    for field in ("labels", "log_evidence", "suspicion", "rejected_at", "onset"):
        assert getattr(test, field) == pytest.approx(saved[field], abs=1e-9)
    labels = test.labels
    p = np.full(300, 0.8)
    test.update(p, outcomes(np.random.default_rng(0), p - 0.3))
    assert test.log_evidence > saved["log_evidence"] + 5
    assert test.labels == labels + 300
    again = CalibrationTest()
    again.restore(json.loads(json.dumps(test.state())))
    assert again.log_evidence == test.log_evidence


@pytest.mark.parametrize("version", [1, 2])
def test_onset_time_of_an_earlier_version_continues(version):
    """All bettors have the onset of the earlier leader."""
    saved = earlier_state(version, "drift")["state"]
    since = np.subtract(saved["won"], saved["lowest"])
    onsets = [10.0 * bettor for bettor in range(len(since))]
    test = TimedTest(0.05, 0.02)
    test.restore({"test": saved, "onsets": onsets, "rejected_time": None})
    assert test.onset == onsets[int(np.argmax(since))]
    p = np.full(200, 0.8)
    test.add(90, 100, p, np.zeros(200), np.full(200, 95.0), np.zeros(200, np.int64))
    assert test.rejected_time == 95


@pytest.mark.parametrize("start", np.linspace(0.03, 0.87, 8))
@pytest.mark.parametrize("shift", [-0.12, 0.12])
@pytest.mark.parametrize("target", ["top_label", "positive_class"])
def test_an_alternative_resembles_a_local_drift_at_every_confidence(start, shift, target):
    """One of them has at least 70% of the divergence, wherever the tenth of confidences begins."""
    c = np.linspace(start, start + 0.1, 50)
    truth = np.clip(c + shift, 1e-6, 1 - 1e-6)
    logs = alternatives(target).log_ratios[:, confidence_cells(c)]
    gains = truth @ logs[1] + (1 - truth) @ logs[0]
    divergence = scipy.special.rel_entr(truth, c) + scipy.special.rel_entr(1 - truth, 1 - c)
    assert gains.max() > 0.7 * divergence.sum()


@pytest.mark.parametrize("target", ["top_label", "positive_class"])
def test_weights_of_alternatives_sum_to_1(target):
    table = alternatives(target)
    assert table.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(table.onsets.sum(axis=1), 1)
    assert table.weights.min() > 0
    assert table.onsets.min() >= 0


def test_numbers_of_classes_make_no_difference_to_the_positive_class():
    """P(y = 0) and 1 − y give the evidence of P(y = 1) and y: either class may be class 1."""
    rng = np.random.default_rng(8)
    p = rng.random(2_000)
    y = outcomes(rng, 1 / (1 + 2 * (1 - p) / p))
    tests = [CalibrationTest(bettors=default_bettors("positive_class")) for _ in range(2)]
    tests[0].update(p, y)
    tests[1].update(1 - p, 1 - y)
    assert tests[0].log_evidence == pytest.approx(tests[1].log_evidence, rel=1e-6)
    assert tests[0].rejected_at == tests[1].rejected_at


@pytest.mark.parametrize("factor", [50, 1 / 50])
def test_shifted_base_rate_is_found_by_the_positive_class(factor):
    """Of balanced classes, whose top label stays calibrated: benchmarks/monitoring/README.md."""
    rng = np.random.default_rng(9)
    rate = factor / (1 + factor)
    y = (rng.random(400) < rate).astype(float)
    # Features of unit variance, two apart: with equal shares, the log-odds are twice the feature.
    p = 1 / (1 + np.exp(-2 * rng.normal(2 * y - 1, 1)))
    positive = CalibrationTest(bettors=default_bettors("positive_class"))
    positive.update(p, y)
    assert positive.rejected_at is not None
    assert positive.rejected_at < 100
    top_label = CalibrationTest()
    top_label.update(np.maximum(p, 1 - p), ((p > 0.5) == y).astype(float))
    assert top_label.rejected_at is None


def test_the_size_of_updates_makes_no_difference():
    """Row by row, in uneven parts or all at once: the same evidence, up to rounding."""
    rng = np.random.default_rng(7)
    p = confidences(rng, 2_000)
    correct = outcomes(rng, drifted(p, "overconfident"))
    uninterrupted = CalibrationTest()
    uninterrupted.update(p, correct)
    for cuts in (range(1, 2_000), np.sort(rng.integers(0, 2_000, 60))):
        test = CalibrationTest()
        for rows in zip(np.split(p, cuts), np.split(correct, cuts), strict=True):
            test.update(*rows)
        assert test.log_evidence == pytest.approx(uninterrupted.log_evidence, abs=1e-9)
        assert test.suspicion == pytest.approx(uninterrupted.suspicion, abs=1e-9)
        assert (test.rejected_at, test.onset) == (uninterrupted.rejected_at, uninterrupted.onset)
        assert (test.labels, test.blocks) == (uninterrupted.labels, uninterrupted.blocks)


def test_reserve_of_the_stake_equals_its_formula():
    """All before the first block, then 0.15 / log₂(blocks + 1)."""
    assert [_reserve(blocks) for blocks in (0, 1, 3, 7)] == pytest.approx([1, 0.15, 0.075, 0.05])


def test_rejection_is_at_the_first_label_whose_evidence_reaches_the_threshold():
    rng = np.random.default_rng(9)
    p = confidences(rng, 3_000)
    correct = outcomes(rng, drifted(p, "overconfident"))
    by_row, at_once = CalibrationTest(alpha=0.1), CalibrationTest(alpha=0.1)
    at_once.update(p, correct)
    assert by_row.threshold == pytest.approx(np.log(10))
    while by_row.log_evidence < by_row.threshold:
        row = slice(by_row.labels, by_row.labels + 1)
        by_row.update(p[row], correct[row])
    assert 0 < by_row.labels == by_row.rejected_at == at_once.rejected_at < 3_000


@few_or_many(6, 20)
def test_onset_is_near_the_change(draws):
    """5,000 calibrated labels, then overconfidence: the refit uses the labels after it."""
    onsets = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 4])
        p = confidences(rng, 10_000)
        truth = p.copy()
        truth[5_000:] = drifted(p[5_000:], "overconfident")
        test = CalibrationTest()
        test.update(p, outcomes(rng, truth))
        onsets.append(test.onset)
    assert np.quantile(np.abs(np.array(onsets) - 5_000), 0.75) < 1_000


@pytest.mark.parametrize(
    ("p", "a", "field"),
    [
        ([0.5, 1.5], [0, 1], "confidences"),
        ([0.5, np.nan], [0, 1], "confidences"),
        ([[0.5]], [[1]], "confidences"),
        ([0.5, 0.5], [0], "correct"),
        ([0.5, 0.5], [0, 2], "correct"),
        ([0.5, 0.5], [0, np.nan], "correct"),
    ],
)
def test_bad_rows_are_rejected_and_change_nothing(p, a, field):
    test = CalibrationTest()
    with pytest.raises(InputError) as excinfo:
        test.update(np.array(p), np.array(a))
    assert excinfo.value.field == field
    assert test.labels == 0


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 1.0}, {"tolerance": -0.1}])
def test_bad_options_are_rejected(options):
    with pytest.raises(InputError):
        CalibrationTest(**options)
