"""The sums of a reliability diagram in a card, against numpy's histograms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, softmax

import recalib.scale
from recalib.core.card import Card, ReliabilityBins
from recalib.fitting.fit import fit
from recalib.metrics import Predictions
from recalib.reporting.plots import reliability_diagram
from recalib.reporting.plots.reliability_diagram import diagram_of_card
from tests.fitting.conftest import draw


def _sums(p: np.ndarray, y: np.ndarray, edges: np.ndarray, *, is_root: bool) -> ReliabilityBins:
    # Bins of the card hold their upper edge, those of numpy their lower edge.
    count, confidence, correct = (
        np.histogram(-p, -edges[::-1], weights=w)[0][::-1] for w in (None, p, y)
    )
    return ReliabilityBins(tuple(count), tuple(confidence), tuple(correct), is_root)


def test_sums_are_those_of_histograms() -> None:
    logits, labels = draw(900, 3, 2.0, seed=1)
    card = fit(logits, labels, measure=True).card
    p = softmax(logits, axis=1)
    right = (p.argmax(1) == labels).astype(float)
    expected = _sums(p.max(1), right, np.linspace(0, 1, 16), is_root=False)
    found = card.reliability["before"]
    assert (found.count, found.correct) == (expected.count, expected.correct)
    assert found.confidence == pytest.approx(expected.confidence)
    assert sum(card.reliability["after"].correct) == right.sum()
    assert Card.from_json(card.to_json()) == card


def test_a_rare_class_has_bins_on_a_square_root_scale() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-4, 1.5, 2000)
    labels = (rng.random(2000) < expit(odds)).astype(np.int64)
    found = fit(np.stack([0 * odds, odds], axis=1), labels, measure=True).card.reliability
    expected = _sums(expit(odds), labels.astype(float), np.linspace(0, 1, 16) ** 2, is_root=True)
    assert found["before"].is_root
    assert (found["before"].count, found["before"].correct) == (expected.count, expected.correct)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_files_give_the_sums_of_arrays(tmp_path: Path, classes: int, weighted: bool) -> None:
    logits, labels = draw(600, classes, 2.0, seed=1)
    weights = np.linspace(0.5, 3, 600) if weighted else None
    for i, rows in enumerate(np.split(np.arange(600), 2)):
        np.savez(tmp_path / f"{i}.npz", logits=logits[rows], labels=labels[rows])
    files = None
    if weights is not None:
        (tmp_path / "weights").mkdir()
        files = str(tmp_path / "weights")
        for i, part in enumerate(np.split(weights, 2)):
            np.save(f"{files}/{i}.npy", part)
    source = str(tmp_path / "*.npz")
    found = recalib.scale.fit(source, measure=True, sample_weight=files).card.reliability
    expected = fit(logits, labels, measure=True, sample_weight=weights).card.reliability
    for stage, sums in expected.items():
        assert found[stage].count == sums.count
        for name in ("confidence", "correct", "weight", "squared_weight"):
            assert getattr(found[stage], name) == pytest.approx(getattr(sums, name), rel=1e-6), name


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_count_as_rows_of_the_population(classes: int) -> None:
    """Shares are those of the weighted histogram; equal weights of a bin give Wilson's interval."""
    logits, labels = draw(400, classes, 2.0, seed=1)
    weights = np.where(labels == 0, 3.0, 1.0)
    card = fit(logits, labels, measure=True, sample_weight=weights).card
    assert Card.from_json(card.to_json()) == card
    p = softmax(logits, axis=1)
    score, event = (p[:, 1], labels == 1) if classes == 2 else (p.max(1), p.argmax(1) == labels)
    total, hits = (
        np.histogram(-score, -np.linspace(0, 1, 16)[::-1], weights=weights * of)[0][::-1]
        for of in (np.ones(400), event)
    )
    chart = diagram_of_card({"before": card.reliability["before"]}, classes=classes)
    (bars,) = (rows for rows in chart.to_dict()["datasets"].values() if "share" in rows[0])
    filled = total > 0
    assert [bar["accuracy"] for bar in bars] == pytest.approx(hits[filled] / total[filled])
    assert [bar["share"] for bar in bars] == pytest.approx(total[filled] / total.sum())
    same = fit(logits, labels, measure=True, sample_weight=np.full(400, 7.0)).card.reliability
    plain = fit(logits, labels, measure=True).card.reliability
    charts = [diagram_of_card(sums, classes=classes).to_dict() for sums in (same, plain)]
    ours, theirs = ([*chart["datasets"].values()] for chart in charts)
    assert [[pytest.approx(bar) for bar in rows] for rows in theirs] == [*map(list, ours)]


@pytest.mark.parametrize("classes", [2, 3])
def test_diagram_of_a_card_is_that_of_its_rows(classes: int) -> None:
    logits, labels = draw(600, classes, 2.0, seed=1)
    sums = fit(logits, labels, measure=True).card.reliability["before"]
    predictions = Predictions.from_logits(logits, labels)
    charts = (
        diagram_of_card({"before": sums}, classes=classes),
        reliability_diagram({"before": predictions}),
    )
    ours, expected = (
        [rows for rows in chart.to_dict()["datasets"].values() if "share" in rows[0]]
        for chart in charts
    )
    assert ours
    assert [[pytest.approx(row) for row in rows] for rows in ours] == [*map(list, expected)]
