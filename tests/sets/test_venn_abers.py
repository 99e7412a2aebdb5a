"""Venn-Abers intervals: against isotonic regressions of one more row, and their promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.special
import torch
from sklearn.isotonic import IsotonicRegression

import recalib
from recalib.core.card import Card
from recalib.errors import CorruptError, InputError
from recalib.maps.venn_abers import VennAbers
from recalib.sets.venn_abers import inductive_table

pytestmark = pytest.mark.filterwarnings("ignore::recalib.errors.RecalibWarning")


def draw(rows: int, seed: int = 0, *, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return log-odds that are twice the true ones, and labels."""
    rng = np.random.default_rng(seed)
    odds = 3 * rng.normal(size=rows)
    odds = np.round(odds) if ties else odds
    return odds, (rng.random(rows) < scipy.special.expit(odds / 2)).astype(int)


def draw_classes(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(rows, classes))
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


def by_isotonic_regression(
    scores: np.ndarray, hits: np.ndarray, new: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return p0 and p1 of new scores (M, 2): a regression by scikit-learn for each number."""
    w = np.ones(len(scores) + 1) if weights is None else np.append(weights, 1.0)
    return np.array(
        [
            [
                IsotonicRegression()
                .fit(np.append(scores, s), np.append(hits, hit), w)
                .predict([s])[0]
                for hit in (0.0, 1.0)
            ]
            for s in new
        ]
    )


@pytest.mark.parametrize(("rows", "ties"), [(1, False), (30, False), (30, True), (100, True)])
def test_interval_is_that_of_isotonic_regressions(rows: int, ties: bool) -> None:
    """At scores of rows, between them and beyond; and p is p1 / (1 − p0 + p1)."""
    odds, labels = draw(rows, ties=ties)
    at = np.unique(odds)
    new = np.concatenate([at, (at[1:] + at[:-1]) / 2, [at[0] - 1, at[-1] + 1]])
    calibrator = recalib.fit(odds, labels, "venn_abers")
    found = calibrator.predict_interval(new)
    p0, p1 = by_isotonic_regression(odds, labels, new).T
    np.testing.assert_allclose(found[:, 1], np.stack([p0, p1], axis=1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[:, 0], 1 - found[:, 1, ::-1], rtol=0, atol=1e-15)
    expected = p1 / (1 - p0 + p1)
    np.testing.assert_allclose(calibrator.predict(new)[:, 1], expected, rtol=0, atol=1e-12)


def test_weighted_rows_are_those_of_weighted_regressions() -> None:
    odds, labels = draw(40)
    weights = np.random.default_rng(1).uniform(0.2, 3, 40)
    order = np.argsort(odds)
    table = inductive_table(odds[order], weights[order], (weights * labels)[order])
    new = draw(20, seed=5)[0]
    log_q0, log_p1 = table.at(new)
    expected = by_isotonic_regression(odds, labels, new, weights)
    found = np.stack([-np.expm1(log_q0), np.exp(log_p1)], axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_each_class_is_compared_with_the_rest() -> None:
    """Scores are the classes' probabilities by temperature; p is divided by its sum."""
    logits, labels = draw_classes(80, 3)
    new, _ = draw_classes(10, 3, seed=1)
    calibrator = recalib.fit(logits, labels, "venn_abers")
    temperature = calibrator.parameters["temperature"]
    of_rows, of_new = (scipy.special.softmax(z / temperature, axis=1) for z in (logits, new))
    found = calibrator.predict_interval(new)
    for k in range(3):
        expected = by_isotonic_regression(of_rows[:, k], labels == k, of_new[:, k])
        np.testing.assert_allclose(found[:, k], expected, rtol=0, atol=1e-12)
    merged = found[..., 1] / (1 - found[..., 0] + found[..., 1])
    expected = merged / merged.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(calibrator.predict(new), expected, rtol=0, atol=1e-12)


def test_folds_are_merged_by_geometric_means() -> None:
    odds, labels = draw(60)
    new = draw(20, seed=3)[0]
    calibrator = recalib.fit(odds, labels, "venn_abers", folds=3)
    fold = np.random.default_rng(0).permutation(60) % 3
    of_folds = [by_isotonic_regression(odds[fold == k], labels[fold == k], new) for k in range(3)]
    p0, p1 = np.array(of_folds).transpose(2, 0, 1)
    low, high = 1 - np.prod(1 - p0, axis=0) ** (1 / 3), np.prod(p1, axis=0) ** (1 / 3)
    found = calibrator.predict_interval(new)[:, 1]
    np.testing.assert_allclose(found, np.stack([low, high], axis=1), rtol=0, atol=1e-12)
    expected = high / (1 - low + high)
    np.testing.assert_allclose(calibrator.predict(new)[:, 1], expected, rtol=0, atol=1e-12)


def test_one_of_both_probabilities_is_calibrated() -> None:
    """Of new rows, the sums of labels and of the probability for the true label agree.

    The sums are over 2,000 draws of 10 rows and a new one, where this probability is below ½.
    """
    sums = np.zeros(3)
    for seed in range(2000):
        odds, labels = draw(11, seed)
        order = np.argsort(odds[:10])
        table = inductive_table(odds[order], np.ones(10), labels[order] * 1.0)
        log_q0, log_p1 = table.at(odds[10:])
        p = np.exp(log_p1[0]) if labels[10] else -np.expm1(log_q0[0])
        if p < 0.5:
            sums += labels[10], p, p * (1 - p)
    hits, expected, variance = sums
    assert abs(hits - expected) < 3 * np.sqrt(variance)


def test_interval_shrinks_with_rows_and_p_is_never_sure() -> None:
    new = np.linspace(-20, 20, 201)
    widths = []
    for rows in (100, 10_000):
        calibrator = recalib.fit(*draw(rows), "venn_abers")
        low, high = calibrator.predict_interval(new)[:, 1].T
        p = calibrator.predict(new)[:, 1]
        assert (low < p).all()
        assert (p < high).all()
        assert (np.diff([low, high, p]) >= -1e-15).all()
        assert p.min() > 0
        assert p.max() < 1
        widths.append(np.median(high - low))
    assert widths[1] < widths[0] / 3


def test_fewer_steps_hold_the_exact_interval() -> None:
    odds, labels = draw(3000)
    new = draw(500, seed=1)[0]
    exact, coarse = (recalib.fit(odds, labels, "venn_abers", steps=steps) for steps in (None, 16))
    assert coarse.parameters["edges"].shape == (16,)
    inner, outer = (c.predict_interval(new)[:, 1] for c in (exact, coarse))
    assert (outer[:, 0] <= inner[:, 0]).all()
    assert (outer[:, 1] >= inner[:, 1]).all()
    moved = [scipy.special.logit(c.predict(new)[:, 1]) for c in (exact, coarse)]
    rise = np.ptp(exact.parameters["log_p1"] - exact.parameters["log_q0"])
    assert np.abs(moved[1] - moved[0]).max() <= rise / 15 + 1e-9


def test_masked_classes_have_the_interval_zero() -> None:
    logits, labels = draw_classes(200, 3)
    calibrator = recalib.fit(logits, labels, "venn_abers")
    new = np.array([[1.0, -np.inf, 0.5], [1.0, -np.inf, -np.inf]])
    found = calibrator.predict_interval(new)
    np.testing.assert_array_equal(found[:, 1], 0)
    np.testing.assert_array_equal(found[1], [[1, 1], [0, 0], [0, 0]])


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("options", [{}, {"folds": 3}])
def test_onnx_and_torch_have_the_intervals_of_numpy(classes: int, options: dict[str, int]) -> None:
    """Also with masked classes, in float32; torch in float64 to its rounding."""
    logits, labels = draw_classes(400, classes)
    calibrator = recalib.fit(logits, labels, "venn_abers", **options)
    new = draw_classes(300, classes, seed=1)[0].astype(np.float32)
    new[:9, 0] = -np.inf
    new[9, : classes - 1] = -np.inf
    expected = calibrator.predict_interval(new)
    session = onnxruntime.InferenceSession(calibrator.to_onnx())
    assert [output.name for output in session.get_outputs()] == ["probabilities", "intervals"]
    (by_onnx,) = session.run(["intervals"], {"logits": new})
    np.testing.assert_allclose(by_onnx, expected, rtol=0, atol=2e-7)
    module = calibrator.to_torch()
    stacked = torch.from_numpy(new.reshape(2, 150, classes))
    assert module.predict_interval(stacked).shape == (2, 150, classes, 2)
    by_torch = module.predict_interval(torch.from_numpy(new.astype(np.float64))).numpy()
    np.testing.assert_allclose(by_torch, expected, rtol=0, atol=1e-15)
    plain = recalib.fit(logits, labels).to_torch()
    with pytest.raises(InputError, match="found the map temperature"):
        plain.predict_interval(stacked)


def test_float32_rows_of_a_fit_and_ties_stay_on_their_step() -> None:
    """onnxruntime agrees with float64 on the rows of the fit themselves."""
    logits, labels = draw_classes(2000, 4)
    odds, hits = draw(2000, ties=True)
    for rows, y in (
        (logits.astype(np.float32), labels),
        (np.column_stack([0 * odds, odds / 3]), hits),
    ):
        calibrator = recalib.fit(rows, y, "venn_abers")
        by_onnx = calibrator.session.run(None, {"logits": rows.astype(np.float32)})[0]
        np.testing.assert_allclose(by_onnx, calibrator.predict_float64(rows), rtol=0, atol=2e-6)


def test_saved_intervals_are_the_same(tmp_path: Any) -> None:
    odds, labels = draw(500)
    calibrator = recalib.fit(odds, labels, "venn_abers")
    calibrator.save(tmp_path / "c.calib")
    again = recalib.load(tmp_path / "c.calib")
    np.testing.assert_array_equal(again.predict_interval(odds), calibrator.predict_interval(odds))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"folds": 1}, "options.folds: found 1; accepted: at least 2"),
        ({"folds": 60}, "options.folds: found 60 with 50 rows"),
        ({"steps": 1}, "options.steps: found 1; accepted: at least 2"),
        ({"bins": 3}, "options.bins: found an unknown option; accepted: target, folds, steps"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        recalib.fit(*draw(50), "venn_abers", **options)


def test_steps_of_many_classes_are_limited() -> None:
    assert VennAbers().for_classes(1000).steps == 1048
    with pytest.raises(InputError, match=r"options.steps: found 65536; accepted: at most 8388"):
        VennAbers(steps=65536).for_classes(1000)


def test_other_maps_have_no_interval() -> None:
    calibrator = recalib.fit(*draw(50), "isotonic")
    with pytest.raises(InputError, match=r"found the map isotonic; accepted: .*venn_abers"):
        calibrator.predict_interval([[0.0, 1.0]])


def test_tables_of_different_lengths_are_refused() -> None:
    calibrator = recalib.fit(*draw(50), "venn_abers")
    parameters = dict(calibrator.parameters)
    parameters["edges"] = parameters["edges"][:-1]
    card: Card = calibrator.card
    with pytest.raises(CorruptError, match="no common power of two"):
        type(calibrator)(parameters, card)
