"""The scale of logits: summaries, by independent formulas, and what is found in them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import scipy.special

from recalib.stats import logit_scale
from recalib.stats.logit_scale import ScaleSums, compare_scales, scale_of, spread_bins
from tests.fitting.conftest import draw

_CLASSES = 5
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
