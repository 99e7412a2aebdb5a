"""Histogram binning: against loops in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from recalib.fitting.fit import fit
from recalib.fitting.newton import fit_temperature
from tests.fitting.conftest import draw

WAYS = [
    {"target": target, "binning": binning}
    for target in ("top_label", "one_vs_rest")
    for binning in ("equal_mass", "equal_width")
]


def tempered(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return scipy.special.softmax(logits / fit_temperature(logits, labels).temperature, axis=1)


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_confidences_match_a_loop(binning: str) -> None:
    """The share of hits in the row's bin, smoothed with one row."""
    logits, labels = draw(1000, 4, 2.0)
    p = tempered(logits, labels)
    c, hit = p.max(axis=1), p.argmax(axis=1) == labels
    result = fit(logits, labels, "histogram_binning", binning=binning, bins=10).predict_float64(
        logits
    )
    if binning == "equal_mass":
        bins = np.argsort(np.argsort(c)) // 100
    else:
        bins = np.floor(c * 10).astype(int)
    for i in range(0, 1000, 7):
        same = bins == bins[i]
        g = (hit[same].sum() + min(c[same].mean(), 0.5)) / (same.sum() + 1)
        second = np.sort(p[i])[-2] / (1 - c[i])
        least = second / (1 + second)  # at which prediction and next class are equal
        assert result[i, p[i].argmax()] == pytest.approx(max(g, least), abs=1e-4)
        rest = np.delete(p[i], p[i].argmax())
        shares = np.delete(result[i], p[i].argmax())
        np.testing.assert_allclose(shares / shares.sum(), rest / rest.sum(), rtol=1e-9)


def test_one_vs_rest_matches_a_loop_over_classes() -> None:
    logits, labels = draw(600, 3, 2.0)
    p = tempered(logits, labels)
    expected = np.empty_like(p)
    for k in range(3):
        bins = np.floor(p[:, k] * 8)
        for b in np.unique(bins):
            same = bins == b
            hits = (labels[same] == k).sum()
            expected[same, k] = (hits + min(p[same, k].mean(), 0.5)) / (same.sum() + 1)
    expected /= expected.sum(axis=1, keepdims=True)
    calibrator = fit(
        logits, labels, "histogram_binning", target="one_vs_rest", binning="equal_width", bins=8
    )
    np.testing.assert_allclose(calibrator.predict_float64(logits), expected, rtol=1e-9)


def test_overconfidence_is_corrected() -> None:
    """Half of the labels are random where confidence is high; no temperature fits that."""
    logits, labels = draw(20_000, 4, 1.0)
    rng = np.random.default_rng(1)
    sure = scipy.special.softmax(logits, axis=1).max(axis=1) > 0.95
    labels = np.where(sure & (rng.random(20_000) < 0.5), rng.integers(0, 4, 20_000), labels)
    half = slice(0, 10_000), slice(10_000, None)
    scores = {
        name: -np.log(
            fit(logits[half[0]], labels[half[0]], name).predict_float64(logits[half[1]])[
                np.arange(10_000), labels[half[1]]
            ]
        ).mean()
        for name in ("temperature", "histogram_binning")
    }
    assert scores["histogram_binning"] < scores["temperature"] - 0.005


ODD = {
    "class absent": lambda z, y: (z, np.where(y == 2, 0, y)),
    "single class": lambda z, y: (z, np.zeros_like(y)),
    "separable": lambda z, y: (z, z.argmax(axis=1)),
    "all wrong": lambda z, y: (z, z.argmin(axis=1)),
    "logits x 4000": lambda z, y: (z * 4e3, y),
    "constant": lambda z, y: (np.ones_like(z), y),
    "float16": lambda z, y: (z.astype(np.float16), y),
    "one row": lambda z, y: (z[:1], y[:1]),
    "n < K": lambda z, y: (z[:4], y[:4]),
    "two classes": lambda z, y: (z[:, :2], y % 2),
    "duplicates": lambda z, y: (np.tile(z[:5], (9, 1)), np.tile(y[:5], 9)),
    "masked": lambda z, y: (np.where(np.arange(6) == (y[:, None] + 1) % 6, -np.inf, z), y),
    "one class left": lambda z, y: (np.where(np.arange(6) == y[:, None], z, -np.inf), y),
}
#: The options of maps that have several ways, other than the first.
OTHERS = [("histogram_binning", way) for way in WAYS[1:]] + [
    ("isotonic", {"target": "one_vs_rest"})
]


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize(("name", "options"), OTHERS, ids=str)
def test_degenerate_data_has_a_defined_result(name: str, options: dict, what: str) -> None:
    logits, labels = ODD[what](*draw(100, 6, 2.0))
    calibrator = fit(logits, labels, name, **options)
    probabilities = calibrator.predict(logits)
    assert np.isfinite(calibrator.card.fit.objective)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (probabilities[np.isneginf(logits)] == 0).all()
    assert (probabilities[np.arange(len(labels)), labels] > 0).all()


def test_predictions_are_unchanged_and_small_bins_are_reported() -> None:
    logits, labels = draw(40, 4, 2.0)
    calibrator = fit(logits, labels, "histogram_binning")
    result = calibrator.predict_float64(logits)
    np.testing.assert_array_equal(result.argmax(axis=1), logits.argmax(axis=1))
    assert any("fewer than 5 rows" in text for text in calibrator.card.fit.warnings)
