"""The scale of logits: summaries, by independent formulas, and what is found in them."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats

from recalib.stats import logit_scale
from recalib.stats.logit_scale import (
    LogitScale,
    ScaleSums,
    compare_scales,
    scale_of,
    spread_bins,
)
from tests.fitting.conftest import draw

_CLASSES = 5
_EXAMPLES = Path(__file__).parents[1] / "examples"
LOGITS, LABELS = draw(2000, _CLASSES, 1.0)


HISTORY = [scale_of(LOGITS, LABELS)]
SOFTMAX = scipy.special.softmax(LOGITS, axis=1)


def codes(logits: np.ndarray, labels: np.ndarray | None = LABELS) -> list[str]:
    return [finding.code for finding in compare_scales(scale_of(logits, labels), HISTORY)]


def test_spread_is_the_standard_deviation_of_the_unmasked_logits() -> None:
    masked = LOGITS.copy()
    masked[:, 1] = -np.inf
    rest = np.delete(LOGITS, 1, axis=1)
    np.testing.assert_array_equal(spread_bins(masked), np.floor(8 * np.log2(rest.std(axis=1))))


def test_extreme_rows_are_in_the_outer_bins() -> None:
    rows = np.array([[0.0, 0.0], [-np.inf, 3.0], [1e300, -1e300], [1e-30, 0.0]])
    assert spread_bins(rows).tolist() == [-160, -160, 160, -160]


def test_quantiles_follow_the_rows() -> None:
    """Within a bin, and whatever constant is added to a row."""
    expected = np.quantile(np.log2(LOGITS.std(axis=1)), [0.5, 0.75, 0.95])
    shifted = LOGITS - scipy.special.logsumexp(LOGITS, axis=1, keepdims=True)
    for rows in (LOGITS, shifted):
        np.testing.assert_allclose(scale_of(rows).quantiles, expected, atol=0.02)


def test_summary_of_chunks_is_that_of_all_rows() -> None:
    sums = ScaleSums(_CLASSES)
    for part in np.array_split(np.arange(len(LABELS)), 7):
        sums.add(LOGITS[part], LABELS[part])
    assert sums.finish() == HISTORY[0]


def test_accuracy_chance_and_best_order_by_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, predicted = HISTORY[0], LOGITS.argmax(axis=1)
    assert scale.accuracy == np.mean(predicted == LABELS)
    shares = [np.bincount(part, minlength=_CLASSES) / len(part) for part in (predicted, LABELS)]
    assert scale.chance == pytest.approx(shares[0] @ shares[1])
    orders = (np.mean(np.array(order)[predicted] == LABELS) for order in permutations(range(5)))
    assert scale.best == pytest.approx(max(orders))
    monkeypatch.setattr(logit_scale, "_MAX_CLASSES", 2)
    large = scale_of(LOGITS, LABELS)
    assert (large.accuracy, large.chance) == pytest.approx((scale.accuracy, scale.chance))


@pytest.mark.parametrize(
    ("logits", "labels", "expected"),
    [
        (LOGITS, LABELS, []),
        (LOGITS[:100], LABELS[:100], []),
        (LOGITS[:20], LABELS[:20], []),
        (LOGITS * 1.4, LABELS, ["quantiles"]),
        (LOGITS / 1.4, LABELS, ["quantiles"]),
        (LOGITS * 2, LABELS, ["scale"]),
        (LOGITS / 3, LABELS, ["scale"]),
        (SOFTMAX, LABELS, ["probabilities", "scale"]),
        (SOFTMAX * 100, LABELS, ["probabilities", "scale"]),
        (np.roll(LOGITS, 1, axis=1), LABELS, ["columns"]),
        (LOGITS[:, [1, 0, 2, 3, 4]], LABELS, ["columns"]),
        (LOGITS, np.roll(LABELS, 1), ["chance"]),
        # Half of the labels are random: drift, but not chance.
        (LOGITS, np.where(np.arange(2000) % 2, LABELS, np.roll(LABELS, 1)), []),
    ],
)
def test_findings(logits: np.ndarray, labels: np.ndarray, expected: list[str]) -> None:
    assert codes(logits, labels) == expected


def test_only_probabilities_are_found_without_a_history() -> None:
    first = scale_of(SOFTMAX, np.roll(LABELS, 1))
    assert [finding.code for finding in compare_scales(first, [])] == ["probabilities"]
    assert compare_scales(scale_of(LOGITS * 50, LABELS), []) == []
    assert compare_scales(scale_of(np.log(SOFTMAX), LABELS, declared=False), HISTORY) == []


def test_multilabel_rows_have_no_accuracy() -> None:
    sets = LOGITS > 0
    assert scale_of(LOGITS, sets).labelled == 0
    assert codes(scipy.special.expit(LOGITS), sets) == ["probabilities", "scale"]


def network(seed: int, classes: int = 8) -> np.ndarray:
    """Return the last layer of a network, as a function of 30 features of which 8 have a class."""
    rng = np.random.default_rng(seed)
    common, free = np.eye(30)[:, :classes] * 3, rng.normal(0, 0.5, (30, 1))
    return common + rng.normal(0, 0.1, (30, classes)) + free


def test_constants_are_those_of_the_network() -> None:
    """Training leaves the mean of logits free: drift and scale keep how it depends on the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, 1_000)
    features = np.eye(30)[labels] + rng.normal(0, 0.3, (1_000, 30))
    first, second = network(1), network(3)
    history = [scale_of(features @ first, labels)]

    def found(logits: np.ndarray) -> list[str]:
        findings = compare_scales(scale_of(logits, labels), history)
        return [finding.code for finding in findings if finding.refuses]

    drifted = 0.8 * features + rng.normal(0, 0.2, features.shape)
    assert found(drifted @ first) == []
    assert found(drifted @ first * 1.5 + 100) == []
    assert found(drifted @ second) == ["network"]
    centred = drifted @ first
    assert found(centred - centred.mean(axis=1, keepdims=True)) == ["network"]
    # These have a constant of their own, which says nothing.
    assert found(scipy.special.log_softmax(drifted @ first, axis=1)) == []
    assert found(scipy.special.log_softmax(drifted @ second, axis=1)) == []
    # Few rows, and constants that are noise.
    assert compare_scales(scale_of((drifted @ second)[:40], labels[:40]), history) == []
    noise = features @ (first - first.mean(axis=1, keepdims=True)) + rng.normal(size=(1_000, 1))
    assert found(noise) == []


def test_constants_by_their_definition() -> None:
    constants = HISTORY[0].constants
    assert constants is not None
    values, predicted = LOGITS.mean(axis=1), LOGITS.argmax(axis=1)
    groups = [values[predicted == k] for k in range(_CLASSES)]
    assert constants.rows == [len(group) for group in groups]
    means = [group.mean() - values[0] for group in groups]
    assert constants.means == pytest.approx(means, rel=1e-4)
    assert constants.clarity == pytest.approx(scipy.stats.f_oneway(*groups).statistic, rel=1e-4)
    assert constants.size == pytest.approx(values.std() / np.sqrt(LOGITS.var(axis=1).mean()), 1e-4)


def test_networks_of_the_examples_are_told_apart() -> None:
    """Both were trained on CIFAR-10, with different losses."""

    def scale(loss: str, part: str) -> LogitScale:
        with np.load(_EXAMPLES / f"cifar10-resnet8-{loss}-{part}.npz") as file:
            return scale_of(file["logits"], file["labels"])

    losses = ("cross-entropy", "focal")
    for history, later in product(losses, losses):
        findings = compare_scales(scale(later, "test"), [scale(history, "validation")])
        refused = [finding.code for finding in findings if finding.refuses]
        assert refused == ([] if history == later else ["network"])
