"""Rejection below a confidence: the test of each threshold, and the promise over draws."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy.stats
import torch

import recalib
from recalib.calibrator import Calibrator
from recalib.calibrator.ort import onnxruntime
from recalib.core.card import ConfidenceHistogram, Rejection, RejectionOptions
from recalib.drift.reference_histogram import reference_histogram
from recalib.errors import CorruptError, InputError
from recalib.fitting.request import promise_options
from recalib.sets.rejection import (
    EDGES,
    GRID,
    STARTS,
    accepts,
    rejection_threshold,
    threshold_grid,
)
from tests.fitting.conftest import draw


def draw_rows(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return confidences, and whether rows are right: less often than the confidence says."""
    confidence = rng.beta(3, 1, rows)
    return confidence, rng.random(rows) < confidence**1.5


def _options(risk: float, sureness: float = 0.9) -> RejectionOptions:
    return RejectionOptions(risk=risk, sureness=sureness)


def true_risk(threshold: float) -> float:
    """Return P(wrong | confidence ≥ threshold) of `draw_rows`, by the integral of the density."""
    accepted = 1 - threshold**3
    right = 3 / 4.5 * (1 - threshold**4.5)
    return 1 - right / accepted


def _reference(seed: int = 1000) -> ConfidenceHistogram:
    """Return the histogram of confidences of other rows."""
    return reference_histogram(draw_rows(2000, np.random.default_rng(seed))[0])


@pytest.mark.parametrize("reference", [None, _reference()])
def test_thresholds_are_those_of_a_loop_of_exact_tests(
    reference: ConfidenceHistogram | None,
) -> None:
    """Each start has an equal part of the level, which tests that succeed hand down."""
    if reference is None:
        grid, starts = GRID, list(STARTS)
    else:
        grid = np.array(sorted({*GRID.tolist(), *reference.edges}, reverse=True))
        starts = [reference.edges[-k] for k in EDGES]
    for seed in range(20):
        confidence, correct = draw_rows(800, np.random.default_rng(seed))
        succeeded, level = [], 0.0
        for t in grid:
            of_rows = correct[confidence >= t]
            test = scipy.stats.binom.cdf((~of_rows).sum(), len(of_rows), 0.2)
            level += 0.1 / len(starts) if t in starts else 0.0
            if test <= level:
                succeeded.append(t)
            else:
                level = 0.0
        found = rejection_threshold(confidence, correct, _options(0.2), reference)
        assert found.threshold == min(succeeded)
        accepted = confidence >= found.threshold
        assert (found.accepted, found.errors) == (accepted.sum(), (~correct[accepted]).sum())


def test_risk_of_accepted_rows_stays_in_nine_of_ten_draws() -> None:
    """2,000 draws of 500 rows; the share of failures is below .1 by its exact 99% interval."""
    rng, failures = np.random.default_rng(0), 0
    for _ in range(2000):
        reference = reference_histogram(draw_rows(500, rng)[0])
        found = rejection_threshold(*draw_rows(500, rng), _options(0.25), reference)
        failures += true_risk(found.threshold) > 0.25
    interval = scipy.stats.binomtest(failures, 2000).proportion_ci(0.99)
    assert interval.high < 0.1


def test_starts_at_quantiles_find_thresholds_that_fixed_starts_miss() -> None:
    """A true threshold accepts 34% of the rows, whose confidence is below .93."""

    def draw_mild(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        confidence = 0.5 + 0.43 * rng.beta(3, 2, 4000)
        return confidence, rng.random(4000) < confidence

    rng, succeeded = np.random.default_rng(2), {"fixed": 0, "quantiles": 0}
    for _ in range(50):
        reference, rows = reference_histogram(draw_mild(rng)[0]), draw_mild(rng)
        for starts, histogram in (("fixed", None), ("quantiles", reference)):
            with suppress(InputError):
                rejection_threshold(*rows, _options(0.15), histogram)
                succeeded[starts] += 1
    assert succeeded["fixed"] < 10, succeeded
    assert succeeded["quantiles"] > 40, succeeded


def test_starts_of_two_classes_are_those_of_the_confidence() -> None:
    """A histogram of P(y = 1) is folded at one half; rows without edges have the fixed starts."""
    edges = (0.02, 0.1, 0.3, 0.4, 0.6, 0.7, 0.85)
    grid, starts = threshold_grid(ConfidenceHistogram(edges, (1,) * 8, "positive_class"))
    assert grid[starts].tolist() == [0.98, 0.9, 0.6]
    grid, starts = threshold_grid(ConfidenceHistogram((), (8,)))
    assert grid[starts].tolist() == list(STARTS)


def test_more_rows_accept_more_and_reach_the_true_threshold() -> None:
    rng = np.random.default_rng(1)
    thresholds = [
        np.median(
            [
                rejection_threshold(*draw_rows(n, rng), _options(0.2), _reference()).threshold
                for _ in range(9)
            ]
        )
        for n in (500, 200_000)
    ]
    assert thresholds[1] < thresholds[0]
    grid = np.array([t for t in GRID if true_risk(float(t)) <= 0.2])
    assert thresholds[1] == pytest.approx(grid.min(), abs=0.0101)


def test_calibrator_keeps_its_threshold(tmp_path: Any) -> None:
    logits, labels = draw(2000, 4, 1.0)
    calibrator = recalib.fit(logits[:1000], labels[:1000])
    with pytest.raises(InputError, match="found no threshold of rejection"):
        calibrator.is_accepted(logits)
    error = np.mean(calibrator.predict(logits).argmax(axis=1) != labels)
    fitted = calibrator.fit_rejection(logits[1000:], labels[1000:], error / 2)
    fitted.save(tmp_path / "c.calib")
    again = recalib.load(tmp_path / "c.calib")
    assert again.card.rejection == fitted.card.rejection
    accepted = again.is_accepted(logits)
    rejection = again.card.rejection
    assert rejection is not None
    np.testing.assert_array_equal(
        accepted, calibrator.predict(logits).max(axis=1) >= rejection.threshold
    )
    assert accepted[1000:].sum() == rejection.accepted
    assert rejection.errors / rejection.accepted < error / 2


@pytest.mark.parametrize(
    ("risk", "sureness", "text"),
    [
        (0.0, 0.9, "max_risk: found 0.0; accepted: a number above 0"),
        (0.1, 1.0, "sureness: found 1.0; accepted"),
        (
            0.001,
            0.9,
            "max_risk: found 0.001 with sureness 0.9 on 500 rows; accepted: a larger",
        ),
    ],
)
def test_bad_requests_are_named(risk: float, sureness: float, text: str) -> None:
    rows = draw_rows(500, np.random.default_rng(0))
    with pytest.raises(InputError, match=text):
        rejection_threshold(*rows, _options(risk, sureness), None)


def test_fit_keeps_half_of_the_rows_for_the_threshold() -> None:
    """The same half for prediction sets; the map is that of a fit with sets."""
    logits, labels = draw(4000, 4, 1.0)
    fitted = recalib.fit(logits, labels, sets="lac", max_risk=0.1)
    alone = recalib.fit(logits, labels, sets="lac")
    assert fitted.card.sets == alone.card.sets
    assert fitted.parameters == alone.parameters
    rejection = fitted.card.rejection
    assert rejection is not None
    assert (rejection.rows, rejection.risk, rejection.sureness) == (2000, 0.1, 0.9)
    again = recalib.fit(logits, labels, max_risk=RejectionOptions(risk=0.1, sureness=0.99))
    assert again.card.rejection is not None
    assert again.card.rejection.threshold > rejection.threshold


def test_promise_of_a_fit_holds_for_new_rows() -> None:
    """40 fits; with a probability of 0.9 each, fewer than 30 promises are kept by chance 0.2%."""
    new, truth = draw(20_000, 4, 1.0, seed=99)
    kept = 0
    for seed in range(40):
        fitted = recalib.fit(*draw(2000, 4, 1.0, seed=seed), max_risk=0.15)
        accepted = fitted.is_accepted(new)
        kept += np.mean(fitted.predict(new).argmax(axis=1)[accepted] != truth[accepted]) <= 0.15
    assert kept >= 30


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_risk": 0.1, "sets": "lac", "sets_folds": 5}, "max_risk: found 0.1; accepted: only"),
        ({"max_risk": 0.1, "sample_weight": np.ones(200)}, "sample_weight: found given; accepted"),
        ({"max_risk": 1.5}, "max_risk: found 1.5; accepted: a number above 0 and below 1"),
        ({"max_risk": 1e-6}, "max_risk: found 1e-06 with sureness 0.9 on 100 rows"),
    ],
)
def test_fit_names_a_bad_option(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        recalib.fit(*draw(200, 4, 1.0), **options)


def test_refit_makes_the_promises_of_the_card() -> None:
    logits, labels = draw(2000, 4, 1.0)
    card = recalib.fit(logits, labels, max_risk=0.1).card
    options = promise_options(card)
    assert options == {"sets": None, "sets_folds": None, "max_risk": _options(0.1)}
    in_folds = recalib.fit(logits, labels, sets="lac", sets_folds=3)
    assert promise_options(in_folds.card)["sets_folds"] == 3
    both = in_folds.fit_rejection(logits, labels, 0.1)
    assert promise_options(both.card)["sets_folds"] is None


def test_rounded_probabilities_at_the_threshold_are_accepted() -> None:
    """0.7 in float32 is below 0.7."""
    rule = Rejection(risk=0.1, threshold=0.7, rows=1, accepted=1, errors=0)
    p = np.array([[0.7, 0.3], [0.699, 0.301]])
    for dtype in (np.float64, np.float32):
        assert accepts(p.astype(dtype), rule).tolist() == [True, False]


def test_onnx_and_torch_accept_the_rows_of_numpy() -> None:
    """On the same probabilities they are equal: ties with the threshold, masks and leading axes."""
    logits, labels = draw(2000, 4, 1.0)
    calibrator = recalib.fit(logits, labels, "vector", max_risk=0.15, sets="lac")
    rule = calibrator.card.rejection
    assert rule is not None
    rows = np.concatenate([logits[:300], logits[:99].round(), 0 * logits[:2], 300 * logits[:99]])
    rows = rows.astype(np.float32)
    rows[5, 2] = -np.inf
    session = onnxruntime.InferenceSession(calibrator.to_onnx())
    assert [output.name for output in session.get_outputs()] == [
        "probabilities",
        "sets",
        "accepted",
    ]
    p, accepted = session.run(["probabilities", "accepted"], {"logits": rows})
    np.testing.assert_array_equal(accepted, accepts(p, rule)[:, None])
    assert 0 < accepted.sum() < len(accepted)
    module = calibrator.to_torch()
    for values in (rows, rows.astype(np.float64)):
        tensor = torch.from_numpy(values)
        expected = accepts(module(tensor).numpy(), rule)
        np.testing.assert_array_equal(module.is_accepted(tensor).numpy(), expected)
    cube = tensor.reshape(2, -1, 4)
    np.testing.assert_array_equal(module.is_accepted(cube).numpy(), expected.reshape(2, -1))
    with pytest.raises(InputError, match="found no threshold of rejection"):
        recalib.fit(logits, labels).to_torch().is_accepted(tensor)


def test_damaged_rule_is_refused() -> None:
    calibrator = recalib.fit(*draw(1000, 4, 1.0), max_risk=0.1)
    for change, text in (({"risk": 2.0}, "found 2.0"), ({"errors": 9999}, "9999 errors of")):
        rejection = msgspec.structs.replace(calibrator.card.rejection, **change)
        card = msgspec.structs.replace(calibrator.card, rejection=rejection)
        with pytest.raises(CorruptError, match=text):
            Calibrator(calibrator.parameters, card)
