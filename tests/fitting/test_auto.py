"""`auto` takes temperature scaling unless held-out rows clearly prefer something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.card import AutoChoice, CandidateResult, Card
from recalib.errors import InputError
from recalib.fitting import fit
from recalib.fitting.auto import choose
from recalib.fitting.cross_validation import (
    Candidate,
    HeldOutScores,
    held_out,
    random_folds,
)
from recalib.fitting.fit import configure_pair, resolve_fit
from tests.fitting.conftest import draw

Data = tuple[NDArray[np.float64], NDArray[np.int64]]


def auto(data: Data, **options: Any) -> AutoChoice:
    calibrator = fit(*data, "auto", **options)
    choice = calibrator.card.choice
    assert choice is not None
    assert (calibrator.card.map, calibrator.card.objective) == (choice.map, choice.objective)
    assert calibrator.map.name == choice.map
    return choice


def by_map(choice: AutoChoice) -> dict[str, CandidateResult]:
    return {candidate.map: candidate for candidate in choice.candidates}


def off_by_class(rows: int, classes: int) -> Data:
    """Logits that a scale and an offset of each class correct."""
    rng = np.random.default_rng(5)
    truth = rng.normal(size=(rows, classes)) * 3
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return truth * rng.uniform(1, 2, classes) + 2 * rng.normal(size=classes), labels


def sure_where_it_is_wrong(rows: int) -> Data:
    """Two classes: calibrated for small logits, overconfident for large ones."""
    rng = np.random.default_rng(6)
    truth = rng.normal(size=rows) * 2
    labels = (rng.random(rows) < scipy.special.expit(truth)).astype(np.int64)
    logits = truth + np.sign(truth) * np.maximum(np.abs(truth) - 1, 0) * 4
    return np.stack([np.zeros(rows), logits], axis=1), labels


def test_auto_chooses_temperature_for_an_overconfident_classifier() -> None:
    choice = auto(draw(500, 5, 3.0))
    assert choice.map == "temperature"
    assert choice.reason == "temperature: no other map is clearly better on held-out folds"
    assert (choice.rows, choice.folds) == (500, 5)
    results = by_map(choice)
    assert results["temperature"].chosen
    assert "NLL higher by" in results["identity"].verdict
    assert sum(candidate.chosen for candidate in choice.candidates) == 1


def test_reason_names_a_better_map_that_may_change_predictions() -> None:
    """A table that shows a better map does not contradict the recommendation."""
    candidates = [Candidate(*configure_pair("vector", "nll", {}))]
    data = off_by_class(2000, 4)
    kept, choice = choose(candidates, *data, preserve_accuracy=True)
    assert kept.map.name != "vector"
    assert "; left out, because it may change predictions: vector, NLL lower by " in choice.reason
    free, choice = choose(candidates, *data, preserve_accuracy=False)
    assert free.map.name == "vector"
    assert "left out" not in choice.reason


def test_identity_is_a_candidate() -> None:
    """For a calibrated classifier, a fitted temperature can be worse than none."""
    choice = auto(draw(120, 5, 1.0, seed=4))
    assert choice.map == "identity"
    assert choice.reason.startswith("identity: better than temperature on held-out folds")
    assert by_map(choice)["temperature"].verdict == "identity is better, or as good and simpler"


@pytest.mark.slow
def test_complex_map_needs_a_clear_gain() -> None:
    choice = auto(sure_where_it_is_wrong(2000))
    assert choice.map not in ("identity", "temperature")
    chosen = by_map(choice)[choice.map]
    assert chosen.nll_difference is not None
    assert chosen.nll_difference.high is not None
    assert chosen.nll_difference.high < 0


def test_few_rows_prefer_temperature_to_other_maps() -> None:
    for seed in range(2):
        few = auto(draw(99, 5, 1.0, seed=seed))
        assert few.reason == "temperature: fewer than 100 rows prefer nothing else"
        results = by_map(few)
        assert results["identity"].verdict == "99 rows are fewer than 100"
        assert results["identity"].nll is not None
        assert results["parameterized_temperature"].nll is None


@pytest.mark.slow
def test_predictions_change_only_when_allowed() -> None:
    data = off_by_class(400, 4)
    calibrator = fit(*data, "auto")
    strict = calibrator.card.choice
    assert strict.preserve_accuracy
    assert "structured_vector" not in by_map(strict)
    free = auto(data, preserve_accuracy=False)
    assert free.map in ("structured_vector", "structured_matrix")
    assert not free.preserve_accuracy
    predictions = calibrator.predict(data[0]).argmax(axis=1)
    assert (predictions == data[0].argmax(axis=1)).all()


def test_simplest_of_equal_candidates_is_chosen() -> None:
    """An offset of each class: a matrix fits it too, with more parameters."""
    pair = [Candidate(*configure_pair(name, "nll", {})) for name in ("matrix", "vector")]
    _, choice = choose(pair, *off_by_class(2000, 4), preserve_accuracy=False)
    assert choice.map == "vector"
    assert by_map(choice)["matrix"].verdict == "vector is better, or as good and simpler"


def test_gain_of_rounding_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that contains temperature scaling can be better by rounding, in each row."""
    temperature, vector = (
        Candidate(*configure_pair(name, "nll", {})) for name in ("temperature", "vector")
    )

    def rounded(candidate: Candidate, *arguments: Any, **options: Any) -> HeldOutScores:
        scores = held_out(temperature, *arguments, **options)
        return replace(scores, nll=scores.nll - 1e-7) if candidate == vector else scores

    monkeypatch.setattr("recalib.fitting.auto.held_out", rounded)
    _, choice = choose([temperature, vector], *draw(500, 3, 2.0), preserve_accuracy=False)
    assert choice.map == "temperature"
    assert by_map(choice)["vector"].verdict == "better than temperature by 1e-07 nats only"


def test_separable_rows_determine_no_temperature() -> None:
    logits, _ = draw(200, 3, 1.0)
    choice = auto((logits, logits.argmax(axis=1)))
    assert choice.map == "identity"
    assert "determine no temperature" in choice.reason
    assert "lower bound" in choice.reason
    assert all("determine no" in candidate.verdict for candidate in choice.candidates)


def test_uninformative_logits_get_the_highest_temperature() -> None:
    """The highest temperature gives nearly uniform probabilities."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(300, 4)) * 3
    labels = (logits.argmin(axis=1) + rng.integers(0, 2, 300)) % 4
    calibrator = fit(logits, labels, "auto")
    assert any("upper bound" in parameter for parameter in calibrator.card.fit.bounds_reached)
    assert calibrator.card.map != "identity"
    np.testing.assert_allclose(calibrator.predict(logits), 0.25, atol=0.01)


@pytest.mark.parametrize("rows", [1, 4])
def test_very_few_rows_are_not_compared(rows: int) -> None:
    choice = auto(draw(rows, 3, 1.0))
    assert (choice.map, choice.folds, choice.rows) == ("identity", 0, rows)
    assert choice.reason == f"identity: fewer than 5 rows: {rows}"
    assert all(candidate.nll is None for candidate in choice.candidates)


@pytest.mark.slow
@pytest.mark.usefixtures("all_folds")
def test_scores_match_a_loop() -> None:
    """Each fold under a fit to the others; the interval of a mean is about ±1.96 errors."""
    logits, labels = draw(400, 4, 2.0)
    choice = auto((logits, labels))
    folds = random_folds(len(labels))
    nll, brier = np.empty(400), np.empty(400)
    for fold in range(20):
        out = folds == fold
        p = fit(logits[~out], labels[~out]).predict(logits[out])
        right = np.eye(4)[labels[out]]
        nll[out] = -np.log(p[right == 1])
        brier[out] = ((p - right) ** 2).sum(axis=1)
    result = by_map(choice)["temperature"]
    for scores, measured in ((nll, result.nll), (brier, result.brier)):
        assert measured is not None
        assert measured.value == pytest.approx(scores.mean(), rel=1e-9)
        reach = 1.96 * scores.std() / 20
        assert measured.low == pytest.approx(scores.mean() - reach, abs=0.15 * reach)
        assert measured.high == pytest.approx(scores.mean() + reach, abs=0.15 * reach)
    # The difference is paired: by far narrower than either score.
    plain = -scipy.special.log_softmax(logits, axis=1)[np.arange(400), labels]
    difference = by_map(choice)["identity"].nll_difference
    assert difference is not None
    assert difference.low is not None
    assert difference.value == pytest.approx((plain - nll).mean(), rel=1e-9)
    assert difference.low == pytest.approx(
        (plain - nll).mean() - 1.96 * (plain - nll).std() / 20, abs=0.2 * (plain - nll).std() / 10
    )


@pytest.mark.slow
def test_weights_act_as_row_counts() -> None:
    """Weight 0 removes a row; the scale of weights has no effect."""
    logits, labels = draw(240, 4, 2.0)
    first, second = np.arange(240) < 120, np.arange(240) >= 120
    labels = np.where(second, (logits.argmax(axis=1) + 1) % 4, labels)
    weighted = auto((logits, labels), weights=first * 7.0)
    unweighted = auto((logits[first], labels[first]))
    assert weighted.rows == 120
    assert weighted.map == unweighted.map
    for candidate, other in zip(weighted.candidates, unweighted.candidates, strict=True):
        assert candidate.nll is not None
        assert other.nll is not None
        # Rounding decides where network fits stop.
        assert candidate.nll.value == pytest.approx(other.nll.value, rel=1e-6)


@pytest.mark.slow
def test_many_logits_are_subsampled() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1100, 3000)).astype(np.float32) * 3
    choice = auto((logits, rng.integers(0, 3000, 1100)))
    assert choice.rows == 1000
    assert "more than 2,000,000 logits" in by_map(choice)["parameterized_temperature"].verdict
    assert by_map(choice)["temperature"].nll is not None


@pytest.mark.slow
def test_objective_applies_to_all_candidates() -> None:
    """Held-out NLL decides; maps that the objective cannot fit are excluded."""
    choice = auto(draw(150, 4, 2.0), objective="brier")
    assert {
        candidate.objective for candidate in choice.candidates if candidate.map != "identity"
    } == {"brier"}
    grid = auto(draw(150, 4, 2.0), objective="ece_grid", preserve_accuracy=False)
    assert {"temperature", "class_temperature"} <= set(by_map(grid)) <= {
        "identity", "temperature", "class_temperature"
    }  # fmt: skip


def test_card_records_the_choice(tmp_path: Path) -> None:
    calibrator = fit(*draw(300, 3, 2.0), "auto")
    calibrator.save(tmp_path / "a.calib")
    loaded = Calibrator.load(tmp_path / "a.calib")
    assert loaded.card.choice == calibrator.card.choice
    assert Card.from_json(calibrator.card.to_json()) == calibrator.card


def test_progress_names_the_candidate_and_the_fold() -> None:
    messages: list[str] = []
    fit(*draw(200, 3, 2.0), "auto", progress=lambda stage, i, value: messages.append(stage))
    assert "temperature, fold 1 of 5: temperature" in messages
    assert any(message.startswith("intra_order_preserving, fold 5 of 5: ") for message in messages)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"preserve_accuracy": "maybe"}, "options"),
        ({"gamma": 2}, "options.gamma"),
        ({"objective": "luck"}, "objective"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as excinfo:
        fit(*draw(20, 3, 1.0), "auto", **options)
    assert excinfo.value.field == field


def test_auto_rejects_a_warm_start() -> None:
    data = draw(50, 3, 1.0)
    with pytest.raises(InputError, match="start"):
        fit(*data, "auto", start=fit(*data))


def test_policy_is_not_a_map() -> None:
    assert isinstance(resolve_fit("temperature", "nll", {}), Candidate)
    assert not isinstance(resolve_fit("auto", "nll", {}), Candidate)
    with pytest.raises(InputError, match=r"magic.*temperature.*auto"):
        resolve_fit("magic", "nll", {})


@pytest.mark.slow
def test_auto_beats_temperature_on_held_out_rows(real_data: Path) -> None:
    """For a published network, `auto` beats temperature scaling on the test rows."""
    with np.load(real_data / "resnet110-cifar10-val.npz") as file:
        logits, labels = file["logits"], file["labels"]
    with np.load(real_data / "resnet110-cifar10-test.npz") as file:
        test_logits, test_labels = file["logits"], file["labels"]
    logits, labels = logits[:1500], labels[:1500]
    calibrator = fit(logits, labels, "auto")
    rows = np.arange(len(test_labels))
    plain, chosen = (
        -np.log(calibrator_.predict(test_logits.astype(np.float64))[rows, test_labels])
        for calibrator_ in (fit(logits, labels), calibrator)
    )
    error = (chosen - plain).std() / np.sqrt(len(rows))
    assert chosen.mean() - plain.mean() + 1.645 * error < 0.005 * plain.mean()
