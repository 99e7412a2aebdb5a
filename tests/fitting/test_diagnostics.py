"""A fit that harms says so: each kind of harm has a warning, and ordinary fits have none."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

from recalib.calibrator import Calibrator
from recalib.fitting.fit import fit
from recalib.fitting.repeated_rows import distinct_rows, excess_agreement
from recalib.scale.fit import fit as fit_files


def draw(
    rows: int, classes: int, seed: int = 0, temperature: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels whose best temperature is `temperature`."""
    random = np.random.default_rng(seed)
    z = 2 * random.normal(size=(rows, classes))
    return temperature * z, (z + random.gumbel(size=z.shape)).argmax(axis=1)


def kinds(calibrator: Calibrator) -> list[str]:
    """Return the kinds of the card's diagnostics, each of which has a warning."""
    summary = calibrator.card.fit
    assert len(summary.warnings) >= len(summary.diagnostics)
    return [item.kind for item in summary.diagnostics]


@pytest.mark.parametrize("map", ["temperature", "vector", "isotonic", "beta", "spline"])
def test_fits_of_ordinary_rows_have_no_diagnostics(map: str) -> None:
    assert kinds(fit(*draw(1_000, 3, temperature=1.5), map)) == []


def test_temperatures_of_few_rows_do_not_warn_by_chance() -> None:
    # With N rows the optimism of one number is 1/N on average, and not with certainty.
    fits = [fit(*draw(rows, 3, seed)) for rows in (30, 60, 120) for seed in range(30)]
    assert [kinds(calibrator) for calibrator in fits].count([]) >= len(fits) - 1


@pytest.mark.parametrize("map", ["identity", "auto"])
@pytest.mark.parametrize("classes", [2, 5])
def test_rows_without_an_error_determine_no_temperature_to_compare_with(
    map: str, classes: int
) -> None:
    logits, _ = draw(400, classes)
    calibrator = fit(logits, logits.argmax(axis=1), map)
    assert kinds(calibrator) == []
    assert list(calibrator.card.fit.estimates["nll"].references) == ["identity"]


def test_estimates_are_near_the_scores_on_new_rows() -> None:
    # The mean over fits: the optimism of one map with 60 parameters at 300 rows is about .1 nats.
    new_logits, new_labels = draw(4_000, 10, seed=99)
    at = np.arange(len(new_labels)), new_labels
    estimates, measured = [], []
    for seed in range(20):
        calibrator = fit(*draw(300, 10, seed), "isotonic", target="one_vs_rest")
        estimate = calibrator.card.fit.estimates["nll"]
        estimates.append(estimate.value - estimate.references["identity"])
        identity = new_logits[at] - np.log(np.exp(new_logits).sum(axis=1))
        measured.append((identity - np.log(calibrator.predict(new_logits)[at])).mean())
    assert np.mean(measured) > 0.05
    error = np.std(estimates) / len(estimates) ** 0.5
    assert np.mean(estimates) == pytest.approx(np.mean(measured), abs=3 * error + 0.02)


def test_a_map_that_overfits() -> None:
    logits, labels = draw(3_000, 40)
    calibrator = fit(logits, labels, "histogram_binning", target="one_vs_rest", bins=64)
    assert "nll above identity" in kinds(calibrator)
    assert any("NLL on new rows" in text for text in calibrator.card.fit.warnings)


@pytest.fixture
def shifted() -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of a classifier that was trained on rebalanced rows: log-odds + log 50."""
    random = np.random.default_rng(5)
    odds = 1.5 * random.normal(size=10_000) - 5
    labels = (random.random(10_000) < 1 / (1 + np.exp(-odds))).astype(int)
    return 1 / (1 + np.exp(-odds - np.log(50))), labels


def test_a_wrong_base_rate_that_the_map_cannot_repair(
    shifted: tuple[np.ndarray, np.ndarray],
) -> None:
    calibrator = fit(*shifted, input="probabilities", class_labels=("no", "yes"))
    assert kinds(calibrator) == ["class totals"]
    assert "yes has a mean probability of 0.32" in calibrator.card.fit.warnings[-1]
    assert "fit vector" in calibrator.card.fit.warnings[-1]
    assert kinds(fit(*shifted, "vector", input="probabilities")) == []


def test_weights_that_leave_few_rows() -> None:
    logits, labels = draw(1_000, 3)
    weights = np.exp(6 * np.random.default_rng(0).normal(size=1_000))
    calibrator = fit(logits, labels, "vector", sample_weight=weights)
    assert kinds(calibrator) == ["effective rows"]
    kish = weights.sum() ** 2 / np.square(weights).sum()
    assert calibrator.card.fit.effective_rows == pytest.approx(kish)


def test_a_column_on_another_scale() -> None:
    logits, labels = draw(1_000, 4)
    logits[:, 2] *= 1_000
    assert "column scale" in kinds(fit(logits, labels, "matrix"))


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_repeated_with_their_labels(seed: int) -> None:
    logits, labels = draw(20, 5, seed, temperature=2.0)
    calibrator = fit(np.repeat(logits, 75, axis=0), np.repeat(labels, 75))
    assert "repeated rows" in kinds(calibrator)
    assert any("1500 rows are 20 rows" in text for text in calibrator.card.fit.warnings)


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_few_values_are_not_repeated_rows(seed: int) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(10, random_state=seed).fit(x[::2], y[::2])
    p = forest.predict_proba(x[1::2])
    assert len(np.unique(p, axis=0)) <= 11
    assert "repeated rows" not in kinds(fit(p, y[1::2], "isotonic", input="probabilities"))
    one_hot = np.eye(2)[p.argmax(axis=1)]
    assert "repeated rows" not in kinds(fit(one_hot, y[1::2], input="probabilities"))


def test_labels_decide_whether_equal_scores_are_repeated_rows() -> None:
    random = np.random.default_rng(0)
    logits = np.repeat(random.normal(size=(50, 3)), 10, axis=0)
    units = distinct_rows(logits)
    labels = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    assert excess_agreement(logits, 1.0, labels, units) is None
    assert excess_agreement(logits, 1.0, labels[::10].repeat(10), units) is not None


def test_groups_are_independent_rows() -> None:
    logits, labels = draw(100, 3)
    groups = np.repeat(np.arange(100), 4)
    calibrator = fit(np.repeat(logits, 4, axis=0), np.repeat(labels, 4), "auto", groups=groups)
    assert "repeated rows" not in kinds(calibrator)
    assert calibrator.card.fit.effective_rows == pytest.approx(100)
    assert "effective rows" not in kinds(calibrator)  # nothing that a user can change


def test_files_have_the_diagnostics_of_arrays(
    shifted: tuple[np.ndarray, np.ndarray], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recalib.scale.row_sample._SAMPLE_ROWS", 2_000)
    probabilities, labels = shifted
    p = np.stack([1 - probabilities, probabilities], axis=1)
    for part in range(2):
        np.savez(f"{tmp_path}/{part}.npz", probabilities=p[part::2], labels=labels[part::2])
    calibrator = fit_files(str(tmp_path), input="probabilities")
    assert kinds(calibrator) == ["class totals"]
    assert calibrator.card.fit.effective_rows == 10_000


def test_a_card_has_the_values(tmp_path: object) -> None:
    logits, labels = draw(500, 3)
    calibrator = fit(logits, labels, "vector")
    path = f"{tmp_path}/vector.calib"
    calibrator.save(path)
    assert Calibrator.load(path).card.fit == calibrator.card.fit
    assert set(calibrator.card.fit.estimates) == {"nll", "brier", "error"}


def test_independent_labels_whose_base_rate_a_temperature_cannot_repair() -> None:
    random = np.random.default_rng(0)
    odds = 1.5 * random.normal(size=(2_000, 3))
    labels = (random.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(int)
    fits = {"task": "multilabel", "class_labels": ("sea", "sun", "dog")}
    assert kinds(fit(odds, labels, **fits)) == []
    shifted = odds + np.array([0, 2, 0])
    calibrator = fit(shifted, labels, **fits)
    assert kinds(calibrator) == ["label totals"]
    assert "label sun has a mean probability of 0.6" in calibrator.card.fit.warnings[-1]
    assert kinds(fit(shifted, labels, "platt", **fits)) == []
