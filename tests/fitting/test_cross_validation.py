"""Cross-validation compares calibrators on held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from recalib.fitting.cross_validation import (
    Candidate,
    Refit,
    compare_by_cross_validation,
    random_folds,
)
from recalib.fitting.fit import fit
from recalib.fitting.newton import fit_temperature
from recalib.fitting.promotion import THRESHOLD
from recalib.fitting.request import configure_pair
from tests.fitting.conftest import draw

pytestmark = pytest.mark.usefixtures("all_folds")


def candidate(name: str) -> Candidate:
    return Candidate(*configure_pair(name, "nll", {}))


def test_scores_match_a_loop() -> None:
    """Each row under a fit to the other folds, written out with scipy."""
    logits, labels = draw(203, 4, 2.0)
    result = compare_by_cross_validation(
        candidate("temperature"), candidate("identity"), logits, labels
    )
    folds = random_folds(len(labels))
    scores, plain = np.empty(len(labels)), np.empty(len(labels))
    for i in range(len(labels)):
        training = folds != folds[i]
        t = fit_temperature(logits[training], labels[training]).temperature
        scores[i] = -scipy.special.log_softmax(logits[i] / t)[labels[i]]
        plain[i] = -scipy.special.log_softmax(logits[i])[labels[i]]
    assert result.nll == pytest.approx(scores.mean(), rel=1e-9)
    assert result.reference_nll == pytest.approx(plain.mean(), rel=1e-9)
    error = (plain - scores).std(ddof=1) / np.sqrt(len(labels))
    assert result.standard_error == pytest.approx(error, rel=1e-6)
    assert result.better == (plain.mean() - scores.mean() > THRESHOLD * error)


def test_candidate_beats_an_overconfident_classifier() -> None:
    logits, labels = draw(1000, 5, 3.0)
    result = compare_by_cross_validation(
        candidate("temperature"), candidate("identity"), logits, labels
    )
    assert result.better
    assert "beats identity" in result.reason


def test_candidate_does_not_beat_a_calibrated_classifier() -> None:
    logits, labels = draw(1000, 5, 1.0, seed=3)
    result = compare_by_cross_validation(
        candidate("class_temperature"), candidate("identity"), logits, labels
    )
    assert not result.better
    assert "does not beat identity" in result.reason


def test_fitted_calibrator_is_not_refitted() -> None:
    champion = fit(*draw(1000, 5, 3.0, seed=1))
    logits, labels = draw(1000, 5, 3.0, seed=2)
    result = compare_by_cross_validation(candidate("temperature"), champion, logits, labels)
    p = champion.predict(logits)
    assert result.reference_nll == pytest.approx(
        -np.log(p[np.arange(1000), labels]).mean(), rel=1e-9
    )


@pytest.mark.parametrize(
    ("rows", "count"),
    [(1, 1), (7, 7), (300, 20), (2_000, 20), (5_000, 8), (8_000, 5), (50_000, 5)],
)
def test_folds_are_even_random_and_deterministic(rows: int, count: int) -> None:
    folds = random_folds(rows)
    sizes = np.bincount(folds)
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(folds, random_folds(rows))
    if rows >= 300:  # independent of the order of the rows
        assert abs(np.corrcoef(folds, np.arange(rows))[0, 1]) < 4 / np.sqrt(rows)


@pytest.mark.slow
def test_held_out_score_is_near_the_error_on_other_rows() -> None:
    """The excess NLL of `vector` over the truth; folds stratified by label show half of it."""
    differences, excesses = [], []
    for seed in range(12):
        logits, labels = draw(300, 8, 2.0, seed=seed)
        result = compare_by_cross_validation(
            candidate("vector"), candidate("temperature"), logits, labels
        )
        truth = -scipy.special.log_softmax(logits / 2, axis=1)[np.arange(300), labels]
        fresh, fresh_labels = draw(20_000, 8, 2.0, seed=100 + seed)
        log_p = np.log(fit(logits, labels, "vector").predict_float64(fresh))
        best = scipy.special.log_softmax(fresh / 2, axis=1)
        rows = np.arange(len(fresh))
        excesses.append(float((best - log_p)[rows, fresh_labels].mean()))
        differences.append(result.nll - float(truth.mean()) - excesses[-1])
    error = np.std(differences) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 0.2 * np.mean(excesses) + 2 * error


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        ("as predicted", "every held-out row was predicted correctly"),
        ("one class", "all labels are of class 2"),
    ],
)
@pytest.mark.parametrize("name", ["temperature", "vector"])
def test_all_correct_rows_do_not_favour_a_candidate(name: str, labels: str, word: str) -> None:
    """Higher confidence is always better on such rows; a few errors change that."""
    logits, truth = draw(400, 4, 2.0, seed=8)
    truth = logits.argmax(axis=1) if labels == "as predicted" else np.full_like(truth, 2)
    logits[np.arange(400), truth] += 4.0
    result = compare_by_cross_validation(candidate(name), candidate("identity"), logits, truth)
    assert result.nll < result.reference_nll - result.standard_error
    assert not result.better
    assert word in result.reason
    truth[:4] = (truth[:4] + 1) % 4
    result = compare_by_cross_validation(candidate(name), candidate("identity"), logits, truth)
    assert "cannot be compared" not in result.reason


def test_one_row_cannot_be_cross_validated() -> None:
    logits, labels = draw(1, 3, 1.0)
    result = compare_by_cross_validation(
        candidate("temperature"), candidate("identity"), logits, labels
    )
    assert not result.better
    assert "one row" in result.reason


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_few_rows_use_one_fold_per_row(rows: int) -> None:
    logits, labels = draw(rows, 3, 1.0)
    result = compare_by_cross_validation(
        candidate("temperature"), candidate("identity"), logits, labels
    )
    assert result.folds == rows
    assert np.isfinite([result.nll, result.reference_nll, result.standard_error]).all()


def test_rows_that_are_not_compared_are_in_every_fit() -> None:
    logits, labels = draw(203, 4, 2.0)
    rows = np.arange(203) >= 100
    result = compare_by_cross_validation(
        candidate("temperature"), candidate("identity"), logits, labels, rows=rows
    )
    folds = np.full(203, -1)
    folds[rows] = random_folds(len(labels[rows]))
    scores = []
    for i in np.flatnonzero(rows):
        training = folds != folds[i]
        t = fit_temperature(logits[training], labels[training]).temperature
        scores.append(-scipy.special.log_softmax(logits[i] / t)[labels[i]])
    assert result.rows == 103
    assert result.nll == pytest.approx(np.mean(scores), rel=1e-9)


def test_reference_is_refitted_to_its_own_rows() -> None:
    """Rows 50 to 102 are in both data sets, and in no fit of their fold."""
    logits, labels = draw(203, 4, 2.0)
    own, here = np.arange(103), np.arange(50, 203)
    positions = np.where(own < 50, -1, own - 50)
    refit = Refit(candidate("temperature"), logits[own], labels[own], positions)
    result = compare_by_cross_validation(candidate("identity"), refit, logits[here], labels[here])
    folds = random_folds(len(labels[here]))
    scores = []
    for i, row in enumerate(here):
        training = (positions < 0) | (folds[positions] != folds[i])
        t = fit_temperature(logits[own][training], labels[own][training]).temperature
        scores.append(-scipy.special.log_softmax(logits[row] / t)[labels[row]])
    assert result.reference_nll == pytest.approx(np.mean(scores), rel=1e-9)
