"""Label shift while serving: estimates beside the oracle, bounds, and the weight from labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import logit

from recalib.errors import InputError
from recalib.shift import (
    FixedShare,
    LabelShift,
    Shadow,
    ShadowState,
    adapt,
    answers_given,
    begin_shadow,
    first_adaptation,
    gains,
    next_adaptation,
    window_rows,
)
from recalib.shift.label_shift import MAX_STEP

_CLASSES = 5
_EVEN = np.full(_CLASSES, 1 / _CLASSES)
_SHIFTED = np.array([0.55, 0.25, 0.1, 0.06, 0.04])


def _draw(
    seed: int, rows: int, shares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the exact probabilities of normal classes with even shares, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(_CLASSES, rows, p=shares)
    features = 1.5 * np.eye(_CLASSES)[labels] + rng.standard_normal((rows, _CLASSES))
    powers = np.exp(1.5 * features)
    return powers / powers.sum(axis=1, keepdims=True), labels


def _loss(p: NDArray[np.floating], labels: NDArray[np.intp]) -> float:
    return float(-np.log(p[np.arange(len(labels)), labels]).mean())


def test_adapted_answers_are_those_of_the_other_shares() -> None:
    """Bayes' rule with the densities, which the classes have in closed form."""
    p, _ = _draw(0, 50, _EVEN)
    joint = p / _EVEN * _SHIFTED  # proportional to density x share
    exact = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(adapt(p, _SHIFTED / _EVEN), exact, rtol=1e-12)
    mixed = adapt(p, _SHIFTED / _EVEN, 0.3)
    np.testing.assert_allclose(mixed, 0.7 * p + 0.3 * exact, rtol=1e-12)
    assert adapt(p.astype(np.float32), np.ones(_CLASSES, np.float32)).dtype == np.float32


def test_impossible_classes_stay_impossible() -> None:
    p = np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    np.testing.assert_array_equal(adapt(p, np.array([3.0, 0.0, 1.0])), [[0, 1, 0], [1, 0, 0]])


def test_gains_are_differences_of_log_probabilities() -> None:
    p, labels = _draw(1, 100, _SHIFTED)
    weights = _SHIFTED / _EVEN
    at = np.arange(100), labels
    exact = np.log(adapt(p, weights)[at]) - np.log(p[at])
    np.testing.assert_allclose(gains(p, labels, weights), exact, atol=1e-12)


def test_most_of_the_gain_of_the_oracle_is_reached() -> None:
    p, _ = _draw(2, 2_000, _SHIFTED)
    state = next_adaptation(first_adaptation(_CLASSES), p, _EVEN)
    new, labels = _draw(3, 20_000, _SHIFTED)
    base, oracle = _loss(new, labels), _loss(adapt(new, _SHIFTED / _EVEN), labels)
    assert base - _loss(adapt(new, np.array(state.weights)), labels) > 0.95 * (base - oracle)
    assert state.number == 1
    assert state.gain > 0


def test_priors_are_the_mode_of_the_posterior() -> None:
    """Against a general optimiser on the likelihood of the window and the Dirichlet prior."""
    p, _ = _draw(4, 400, _SHIFTED)
    state = next_adaptation(first_adaptation(_CLASSES), p, _EVEN)

    def loss(free: NDArray[np.float64], counts: float) -> float:
        shares = np.exp(free) / np.exp(free).sum()
        return float(-np.log(p / _EVEN @ shares).sum() - counts * _EVEN @ np.log(shares))

    distances = []
    for counts in 400 * np.array([1.0, 0.3, 0.1, 0.03, 0.01, 0.003]):
        best = scipy.optimize.minimize(loss, np.zeros(_CLASSES), (counts,)).x
        mode = np.exp(best) / np.exp(best).sum()
        distances.append(np.abs(mode - state.priors).max())
    assert min(distances) < 1e-3


@pytest.mark.parametrize("seed", range(8))
def test_without_shift_nothing_changes(seed: int) -> None:
    before = first_adaptation(_CLASSES)
    assert next_adaptation(before, _draw(10 + seed, 2_000, _EVEN)[0], _EVEN) is before


def test_the_order_of_classes_does_not_matter() -> None:
    p, _ = _draw(5, 2_000, _SHIFTED)
    order = np.array([3, 0, 4, 2, 1])
    state, permuted = (
        next_adaptation(first_adaptation(_CLASSES), rows, _EVEN) for rows in (p, p[:, order])
    )
    np.testing.assert_allclose(np.array(state.weights)[order], permuted.weights, rtol=1e-9)


def test_a_step_is_bounded_and_a_shift_that_ends_is_forgotten() -> None:
    rare = np.array([0.92, 0.02, 0.02, 0.02, 0.02])
    p, _ = _draw(6, 2_000, rare)
    state, weights = first_adaptation(_CLASSES), [np.ones(_CLASSES)]
    for rows in (p, p, p, *[_draw(7, 2_000, _EVEN)[0]] * 4):
        state = next_adaptation(state, rows, _EVEN)
        weights.append(np.array(state.weights))
        factors = weights[-1] / weights[-2]
        assert factors.max() <= MAX_STEP * (1 + 1e-12)
        assert factors.min() >= 1 / MAX_STEP * (1 - 1e-12)
    np.testing.assert_array_equal(weights[-1], np.ones(_CLASSES))


def test_a_class_that_calibration_did_not_have_keeps_its_weight() -> None:
    p = np.array([[0.9, 0.1, 0.0]] * 900 + [[0.1, 0.9, 0.0]] * 100)
    state = next_adaptation(first_adaptation(3), p, np.array([0.5, 0.5, 0.0]))
    assert state.weights[0] > 1 > state.weights[1]
    assert state.weights[2] == 1


@pytest.mark.parametrize("shape", [(10,), (1, _CLASSES), (10, 2)])
def test_windows_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="probabilities"):
        next_adaptation(first_adaptation(_CLASSES), np.ones(shape), _EVEN)


def test_windows_hold_200_rows_of_a_class_at_most() -> None:
    assert [window_rows(k) for k in (2, 10, 100, 1_000)] == [2_000, 2_000, 10_000, 20_000]


def test_a_stream_depends_on_its_rows_not_on_its_batches() -> None:
    p, _ = _draw(8, 1_500, _SHIFTED)
    streams = [LabelShift(_EVEN, window=400) for _ in range(2)]
    streams[0].add(p)
    for start in range(0, len(p), 37):
        streams[1].add(p[start : start + 37])
    assert streams[0].state == streams[1].state
    assert streams[0].state.number >= 1


def test_answers_change_once_labels_have_confirmed_the_shift() -> None:
    p, labels = _draw(9, 3_000, _SHIFTED)
    shift = LabelShift(_EVEN, window=1_000)
    shift.add(p[:1_000])
    assert shift.state.number == 1
    np.testing.assert_array_equal(shift.answer(p), p)  # in shadow
    shift.confirm(shift.gains(p[1_000:2_000], labels[1_000:2_000]))
    assert shift.share.weight > 0.99
    assert _loss(shift.answer(p[2_000:]), labels[2_000:]) < _loss(p[2_000:], labels[2_000:]) - 0.1


def test_fixed_share_is_the_sum_over_all_sequences() -> None:
    """The weight after 8 rows, from the 2^8 sequences of which answer is better."""
    differences = np.random.default_rng(0).normal(0, 2, size=8)
    rate, sums = 0.07, np.zeros(2)
    for sequence in np.ndindex(*[2] * 8):
        prior = 0.5 * np.prod(
            [rate if a != b else 1 - rate for a, b in itertools.pairwise(sequence)]
        )
        likelihood = np.exp(np.array(sequence) @ differences)
        sums[sequence[-1]] += prior * likelihood
    posterior = sums[1] / sums.sum()
    share = FixedShare().add(differences.tolist(), rate)
    assert share.weight == pytest.approx(posterior * (1 - rate) + (1 - posterior) * rate)
    assert (share.labels, share.evidence) == (8, pytest.approx(differences.sum()))


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_recover_from_any_evidence(sign: int) -> None:
    """After 10,000 rows for one answer, 30 rows of one nat each turn the weight."""
    share = FixedShare().add([sign * 900.0] + [sign * 1.0] * 10_000)
    assert abs(share.weight - (sign > 0)) < 2e-4
    share = share.add([-sign * 1.0] * 30)
    assert abs(share.weight - (sign < 0)) < 1e-3


def test_nothing_is_applied_without_labels() -> None:
    assert FixedShare().applied == 0
    assert FixedShare().weight == 0.5
    assert FixedShare().add([0.1]).applied > 0.5


def test_a_label_scores_the_state_that_was_there() -> None:
    p, labels = _draw(20, 600, _SHIFTED)
    shadow = begin_shadow(_draw(21, 2_000, _EVEN)[0], 0.0)
    shadow = shadow.renew(_draw(22, 2_000, _SHIFTED)[0], 50.0, now=100.0)
    shadow = shadow.renew(_draw(23, 2_000, _SHIFTED[::-1])[0], 150.0, now=200.0)
    assert [state.number for state in shadow.states] == [1, 2]
    times = np.repeat([50.0, 150.0, 250.0], 200)
    scored = shadow.confirm(times, p, labels, through=300.0)
    parts = [
        gains(p[200 * k : 200 * k + 200], labels[200 * k : 200 * k + 200], np.array(state.weights))
        for k, state in enumerate(shadow.states, 1)
    ]
    assert scored.share.labels == 400
    assert scored.share.evidence == pytest.approx(np.concatenate(parts).sum())
    assert parts[0].sum() > 0 > parts[1].sum()
    assert Shadow.of(scored.to_dict()) == scored


def test_a_label_scores_the_state_that_its_id_names() -> None:
    """Of two states of one time: clocks do not decide. Both losses follow from the answer."""
    p, labels = _draw(20, 400, _SHIFTED)
    right = ShadowState(
        1, 0.0, (2.0, 1.0, 0.5, 0.3, 0.2), tuple(_SHIFTED), 2_000, 0.1, applied=0.75
    )
    wrong = msgspec.structs.replace(
        right, number=2, weights=(0.2, 0.3, 0.5, 1.0, 2.0), applied=0.25
    )
    states = {1: right, 2: wrong}
    numbers = np.repeat([1, 2], 200)
    shadow = Shadow((0.2,) * 5, 0.0, 0.0, (right, wrong))
    scored = shadow.confirm(np.zeros(400), p, labels, 1.0, numbers, states)
    expected = [gains(p[:200], labels[:200], np.array(right.weights))]
    expected.append(gains(p[200:], labels[200:], np.array(wrong.weights)))
    assert scored.share.evidence == pytest.approx(np.concatenate(expected).sum())
    given = answers_given(p, numbers, states)
    np.testing.assert_array_equal(given[:200], adapt(p[:200], np.array(right.weights), 0.75))
    rows = np.arange(400)
    losses = [-np.log(answers[rows, labels]).sum() for answers in (given, p)]
    assert scored.served == pytest.approx(losses[1] - losses[0])


def test_weights_of_labels_are_applied_in_steps_with_numbers() -> None:
    """No number for each label: there are few near 0 and 1. Numbers are those of windows too."""
    shadow = begin_shadow(_draw(21, 2_000, _EVEN)[0], 0.0)
    assert shadow.apply(50.0, 0.5) == shadow  # no state
    shadow = shadow.renew(_draw(22, 2_000, _SHIFTED)[0], 50.0, now=100.0)
    assert shadow.apply(150.0, shadow.share.applied) == shadow  # no label
    for time in range(200, 230):
        share = shadow.share.add([0.3] * 10)
        shadow = msgspec.structs.replace(shadow, share=share).apply(float(time), share.applied)
        applied = shadow.states[-1].applied
        assert abs(logit(applied) - logit(share.weight)) < 0.25
    assert shadow.states[-1].applied > 0.999
    assert [state.number for state in shadow.states] == list(range(1, len(shadow.states) + 1))
    assert len(shadow.states) < 10
    assert {state.weights for state in shadow.states} == {shadow.states[0].weights}
    last = shadow.states[-1]
    shadow = shadow.renew(_draw(23, 2_000, _SHIFTED[::-1])[0], 300.0, now=300.0)
    assert (shadow.states[-1].number, shadow.states[-1].applied) == (last.number + 1, last.applied)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: LabelShift(np.array([1.0, -0.5, 0.5])), "priors"),
        (lambda: LabelShift(np.full(3, 1 / 3), window=1), "window"),
        (lambda: LabelShift(np.full(3, 1 / 3)).add(np.full((2, 4), 0.25)), "probabilities"),
        (lambda: LabelShift(np.full(2, 0.5)).add(np.array([[np.nan, 0.5]])), "probabilities[0]"),
        (lambda: LabelShift(np.full(2, 0.5)).confirm(np.array([np.nan])), "differences"),
    ],
)
def test_invalid_input_is_named(call: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as info:
        call()
    assert info.value.field.startswith(field)
