"""Columns in another order than the classes are named, weak classifiers are not."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from scipy import special, stats

import recalib
from recalib.errors import RecalibWarning
from recalib.stats.column_order import column_order_doubt

_ORDER = [1, 2, 0, 3]


def rows(classes: int, count: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of a classifier that is right for most rows."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    return rng.normal(size=(count, classes)) + 3 * np.eye(classes)[labels], labels


def test_swapped_columns_of_two_classes_are_named_with_the_area() -> None:
    z, y = rows(2)
    area = stats.mannwhitneyu(z[y == 1, 0] - z[y == 1, 1], z[y == 0, 0] - z[y == 0, 1]).statistic
    area /= (y == 0).sum() * (y == 1).sum()
    expected = f"the area under the ROC curve is {area:.3f}, far below 1/2: the two columns"
    assert column_order_doubt(z[:, ::-1], y).startswith(expected)
    assert column_order_doubt(z, y) == ""


def test_wrong_threshold_of_two_classes_is_no_swap() -> None:
    """Accuracy is far below chance, the order of rows is right."""
    z, y = rows(2, 1000)
    rare = (y == 0) | (np.arange(1000) % 10 == 0)
    z, y = z[rare] + [0.0, 20.0], y[rare]
    assert (z.argmax(axis=1) == y).mean() < 0.2
    assert column_order_doubt(z, y) == ""


def test_permuted_columns_are_named_with_both_accuracies_and_the_order() -> None:
    z, y = rows(4)
    permuted = z[:, np.argsort(_ORDER)]
    text = column_order_doubt(permuted, y)
    accuracy = (permuted.argmax(axis=1) == y)[1::2].mean()
    assert text.startswith(f"accuracy is {accuracy:.1%}, and ")
    assert "(class 0 in column 1, class 1 in column 2, class 2 in column 0):" in text
    assert column_order_doubt(z, y) == ""
    many, labels = rows(30, 3000)
    assert column_order_doubt(many[:, ::-1], labels).count("in column") == 5


def test_one_class_of_labels_is_no_swap() -> None:
    for classes in (2, 3):
        z, _ = rows(classes)
        assert column_order_doubt(z, np.ones(len(z), np.int64)) == ""
        constant = np.zeros_like(z) - np.eye(classes)[0]
        assert column_order_doubt(constant, np.ones(len(z), np.int64)) == ""


def test_scores_without_relation_to_labels_are_hardly_ever_named() -> None:
    """At most 1 of 1,000, by an exact 95% interval of 8,000 draws."""
    rng = np.random.default_rng(0)
    draws, named = 8000, 0
    for draw in range(draws):
        classes, count = (2, 3, 10, 2)[draw % 4], (30, 60, 200)[draw % 3]
        y = rng.choice(classes, count, p=rng.dirichlet(np.ones(classes)))
        named += column_order_doubt(rng.normal(size=(count, classes)), y) != ""
    assert stats.beta.ppf(0.975, named + 1, draws - named) <= 1e-3


@pytest.mark.parametrize("input", ["logits", "probabilities"])
def test_strong_biases_of_uneven_classes_are_hardly_ever_named(
    input: Literal["logits", "probabilities"],
) -> None:
    """At most 1 of 1,000, by an exact 95% interval of 4,000 draws."""
    rng = np.random.default_rng(0)
    draws, named = 4000, 0
    for draw in range(draws):
        classes, count, bias = (3, 4, 10)[draw % 3], (60, 300)[draw % 2], (1, 3, 6)[draw % 3]
        y = rng.choice(classes, count, p=rng.dirichlet(np.full(classes, (0.3, 1)[draw % 2])))
        z = rng.normal(size=(count, classes)) + 3 * rng.random() * np.eye(classes)[y]
        z += bias * rng.normal(size=classes)
        scores = special.softmax(z, axis=1) if input == "probabilities" else z
        named += column_order_doubt(scores, y, input) != ""
    assert stats.beta.ppf(0.975, named + 1, draws - named) <= 1e-3


def test_permuted_columns_are_named_in_all_kinds_of_scores() -> None:
    """Of logits, of probabilities with zeros, with masks, and with a constant of each row."""
    z, y = rows(4)
    z = z[:, np.argsort(_ORDER)] + np.linspace(-50, 50, len(z))[:, None]
    masked = np.where((np.arange(4) + y[:, None]) % 4 == 3, -np.inf, z)
    masked = np.where(np.eye(4, dtype=bool)[y], z, masked)
    p = special.softmax(30 * z, axis=1).astype(np.float16)
    assert (p == 0).any()
    for scores in (z, masked, z.astype(np.float16), z.astype(">f4")):
        assert "class 0 in column 1" in column_order_doubt(scores, y)
    assert "class 0 in column 1" in column_order_doubt(p, y, "probabilities")


def test_whole_numbers_without_sign_are_scores() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    votes = rng.binomial(9, np.where(y == 1, 0.7, 0.3)).astype(np.uint8)
    votes_nk = np.stack([9 - votes, votes], axis=1)
    assert recalib.evaluate(y, logits=votes_nk)["accuracy"] > 0.8
    with pytest.warns(RecalibWarning, match="likely swapped"):
        recalib.evaluate(y, logits=votes_nk[:, ::-1])


def test_fit_and_evaluate_warn() -> None:
    z, y = rows(2)
    swapped = z[:, ::-1]
    with (
        pytest.warns(RecalibWarning, match="likely swapped"),
        pytest.warns(RecalibWarning, match="temperature at its upper bound"),
        pytest.warns(RecalibWarning, match="the logits do not predict these labels"),
    ):
        calibrator = recalib.fit(swapped, y)
    assert any("likely swapped" in text for text in calibrator.card.fit.warnings)
    with pytest.warns(RecalibWarning, match="likely swapped") as shown:
        recalib.evaluate(np.where(y == 1, 1, -1), logits=swapped)
    assert shown[0].filename == __file__
