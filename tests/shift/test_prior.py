"""Known class shares: probabilities of other shares, and fits of rebalanced training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

import recalib
from recalib.errors import InputError
from recalib.shift.prior import parse_resampled

#: The share of rows of class 0 that the training keeps.
RATE = 0.05


def population(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true log-odds of rows in use, and labels; one in 23 is of class 1."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-4, 1.5, rows)
    return odds, (rng.random(rows) < expit(odds)).astype(int)


def network(odds: np.ndarray) -> np.ndarray:
    """Return the overconfident log-odds of a classifier that was trained on resampled rows."""
    return 2 * (odds - np.log(RATE))


def resampled_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    odds, labels = population(rows, seed)
    keep = (labels == 1) | (np.random.default_rng(seed + 1).random(rows) < RATE)
    return odds[keep], labels[keep]


def test_other_shares_are_those_of_bayes_rule() -> None:
    """Of two classes, log-odds move by the difference of the shares' log-odds."""
    p = np.array([0.0, 0.2, 0.5, 0.99, 1.0])
    found = recalib.adjust_prior(p, 0.4, 0.01)
    with np.errstate(divide="ignore"):
        expected = expit(logit(p) + logit(0.01) - logit(0.4))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    both = recalib.adjust_prior(np.stack([1 - p, p], axis=1), [0.6, 0.4], [0.99, 0.01])
    np.testing.assert_allclose(both[:, 1], expected, rtol=1e-12)


def test_adjusting_there_and_back_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    p, train, true = rng.dirichlet(np.ones(4), 20), *rng.dirichlet(np.ones(4), 2)
    there = recalib.adjust_prior(p, train, true)
    np.testing.assert_allclose(there.sum(axis=1), 1)
    np.testing.assert_allclose(recalib.adjust_prior(there, true, train), p, rtol=1e-12)


@pytest.mark.parametrize(
    ("train", "true", "text"),
    [
        (0.5, 1.0, "true_prior: found 0, 1; accepted: positive shares"),
        ([0.5, 0.4], 0.1, "train_prior: found 0.5, 0.4; accepted: .* that sum to 1"),
        ([0.2, 0.3, 0.5], 0.1, r"train_prior: found shape \(3,\); accepted: shape \(2,\)"),
    ],
)
def test_bad_shares_are_named(train: Any, true: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        recalib.adjust_prior([0.5], train, true)


@pytest.mark.parametrize("name", ["temperature", "vector", "isotonic", "auto"])
@pytest.mark.parametrize(
    ("rows", "resampled"),
    [
        (population(8000, 1), {"class_weight": (RATE, 1)}),
        (resampled_rows(40_000, 1), {"rate": RATE}),
        (resampled_rows(40_000, 1), {"rate": (RATE, 1)}),
    ],
    ids=["rows as in use", "resampled rows", "rates of each class"],
)
def test_probabilities_are_those_of_rows_in_use(
    name: str, rows: tuple[np.ndarray, np.ndarray], resampled: Any
) -> None:
    """Temperature scaling alone cannot move the base rate and is off by .28."""
    odds, labels = rows
    calibrator = recalib.fit(network(odds), labels, name, resampled=resampled)
    new, _ = population(5000, 9)
    p = calibrator.predict(network(new))[:, 1]
    assert np.abs(p - expit(new)).mean() < 0.01
    assert p.mean() == pytest.approx(expit(new).mean(), abs=0.01)


def test_every_form_of_the_calibrator_has_the_weights(tmp_path: Any) -> None:
    odds, labels = population(3000, 2)
    calibrator = recalib.fit(
        network(odds), labels, resampled={"class_weight": "balanced"}, measure=True
    )
    share = labels.mean()
    expected = np.array([share / (1 - share), 1.0])
    np.testing.assert_allclose(calibrator.card.options["class_weight"], expected, rtol=1e-12)
    calibrator.save(tmp_path / "c.calib")
    again = recalib.load(tmp_path / "c.calib")
    logits = np.column_stack([0 * odds, network(odds)]).astype(np.float32)
    p = again.predict_float64(logits)
    (by_onnx,) = again.session.run(None, {"logits": logits})
    np.testing.assert_allclose(by_onnx, p, atol=1e-6)
    np.testing.assert_allclose(again.to_torch()(torch.from_numpy(logits)).numpy(), p, atol=1e-6)
    after = calibrator.card.metrics["after"]["nll"].value
    assert after == pytest.approx(-np.log(p[np.arange(3000), labels]).mean(), rel=1e-5)


def test_members_of_a_linear_pool_take_the_weights_too() -> None:
    odds, labels = population(8000, 3)
    members = [{"map": "temperature", "weight": 0.5}, {"map": "vector", "weight": 0.5}]
    calibrator = recalib.fit(
        network(odds), labels, "stack", members=members, resampled={"class_weight": (RATE, 1)}
    )
    new, _ = population(5000, 9)
    assert np.abs(calibrator.predict(network(new))[:, 1] - expit(new)).mean() < 0.004


@pytest.mark.filterwarnings("ignore:.* rows, repeated with their labels")
def test_weights_of_rows_and_rates_are_multiplied() -> None:
    """Rows that count twice are as if they were there twice."""
    odds, labels = resampled_rows(20_000, 4)
    twice = np.random.default_rng(0).integers(1, 3, len(odds))
    repeated = recalib.fit(
        network(np.repeat(odds, twice)), np.repeat(labels, twice), resampled={"rate": RATE}
    )
    weighted = recalib.fit(
        network(odds), labels, sample_weight=twice.astype(float), resampled={"rate": RATE}
    )
    new = network(population(100, 9)[0])
    np.testing.assert_allclose(weighted.predict(new), repeated.predict(new), rtol=1e-6)


@pytest.mark.parametrize(
    ("resampled", "options", "text"),
    [
        ({"rate": -1}, {}, "resampled.rate: found -1; accepted: 2 positive numbers, or one for"),
        ({"rate": (1, 2, 3)}, {}, "resampled.rate: found"),
        ({"class_weight": 2.0}, {}, "resampled.class_weight: .* 2 positive numbers, or balanced"),
        ({"class_weight": "even"}, {}, "resampled.class_weight: found 'even'"),
        ({"rates": 0.1}, {}, "resampled: found .*rates.*; accepted: one of rate and class_weight"),
        (0.1, {}, "resampled: found 0.1"),
        ({"rate": 0.1}, {"map": "auto", "objective": "brier"}, "resampled: found brier"),
        ({"rate": 0.1}, {"objective": "brier"}, "resampled: found brier; accepted: a map by nll"),
        ({"rate": 0.1}, {"device": "cpu"}, "device: found cpu with resampled"),
        ({"rate": 0.1}, {"sets": "lac"}, "resampled.rate: found given; accepted: none with sets"),
        (
            {"rate": 0.1},
            {"sample_weight": np.ones(200), "weight_kind": "counts"},
            "weight_kind: found counts with resampled",
        ),
    ],
)
def test_bad_requests_are_named(resampled: Any, options: dict[str, Any], text: str) -> None:
    odds, labels = population(200, 0)
    with pytest.raises(InputError, match=text):
        recalib.fit(odds, labels, **options, resampled=resampled)


def test_texts_of_the_command_line() -> None:
    assert parse_resampled("rate=0.1") == {"rate": 0.1}
    assert parse_resampled("class_weight=1,9") == {"class_weight": [1.0, 9.0]}
    assert parse_resampled("class_weight=balanced") == {"class_weight": "balanced"}
    with pytest.raises(InputError, match="resampled: found 'rate=ten'; accepted: rate=R"):
        parse_resampled("rate=ten")
