"""`auto` takes the mixture of maps that predicts held-out rows best."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.card import AutoChoice, CandidateResult, Card, PolicyWinner
from recalib.errors import InputError
from recalib.fitting import fit
from recalib.fitting.auto import choose
from recalib.fitting.auto_choice import winner_sentences
from recalib.fitting.cross_validation import Candidate, random_folds
from recalib.fitting.racing import Entry, Race
from recalib.fitting.request import configure_pair, resolve_fit
from recalib.maps.temperature import Temperature
from recalib.maps.vector import Vector
from tests.fitting.conftest import draw, draw_with_wrong_labels

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


def wrong_base_rate(rows: int, seed: int = 5) -> Data:
    """Log-odds of a model that was trained on rebalanced rows: shifted by log 50."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=rows) * 1.5 - 5
    labels = (rng.random(rows) < scipy.special.expit(truth)).astype(np.int64)
    return np.stack([np.zeros(rows), truth + np.log(50)], axis=1), labels


def winner_of(choice: AutoChoice, predictions: str) -> PolicyWinner:
    return next(winner for winner in choice.winners if winner.predictions == predictions)


def test_auto_chooses_temperature_for_an_overconfident_classifier() -> None:
    choice = auto(draw(500, 5, 3.0))
    assert choice.map == "temperature"
    assert choice.reason == "temperature: no other map is better on held-out folds"
    assert (choice.rows, choice.folds, choice.predictions) == (500, 5, "may_change")
    results = by_map(choice)
    assert results["temperature"].chosen
    assert "NLL higher by" in results["identity"].verdict
    assert sum(candidate.chosen for candidate in choice.candidates) == 1


def test_wrong_base_rate_is_repaired() -> None:
    """Only maps with an intercept can do it: the best of `keep` is far behind."""
    logits, labels = wrong_base_rate(3000)
    test = wrong_base_rate(10_000, seed=6)
    calibrator = fit(logits, labels, "auto")
    nll = -np.log(calibrator.predict(test[0])[np.arange(10_000), test[1]]).mean()
    truth = scipy.special.expit((test[0][:, 1] - np.log(50)) * (2 * test[1] - 1))
    assert nll < -np.log(truth).mean() + 0.003
    choice = calibrator.card.choice
    assert choice is not None
    free, keep = winner_of(choice, "may_change"), winner_of(choice, "keep")
    assert free.chosen
    assert not keep.chosen
    assert free.nll_difference.high is not None
    assert free.nll_difference.high < -0.2
    assert free.nll_difference.value == pytest.approx(free.nll.value - keep.nll.value)
    assert free.accuracy_difference.value == pytest.approx(
        free.accuracy.value - keep.accuracy.value
    )
    predicted = calibrator.predict(logits).argmax(axis=1)
    keep_text, free_text = (
        next(text for text in winner_sentences(choice) if text.startswith(f"{policy}: "))
        for policy in ("keep", "may_change")
    )
    assert keep_text.endswith("; changes 0.00% of the predictions")
    assert f"NLL {free.nll.value:.4f}" in free_text
    assert f"over keep: NLL {free.nll_difference.value:+.4f} (" in free_text
    # The winner's own share is of held-out predictions.
    assert free.changed == pytest.approx((predicted != logits.argmax(axis=1)).mean(), abs=0.02)
    assert (keep.changed, keep.nll_difference.value) == (0, 0)


def test_reason_names_a_better_map_that_a_policy_leaves_out() -> None:
    """A table that shows a better map does not contradict the recommendation."""
    candidates = [Candidate(*configure_pair("vector", "nll", {}))]
    data = off_by_class(2000, 4)
    kept, choice = choose(candidates, *data, predictions="keep")
    assert kept.map.name == "temperature"
    assert "; left out, because it may change predictions: vector, NLL lower by " in choice.reason
    assert by_map(choice)["vector"].verdict == "it may change predictions"
    free, choice = choose(candidates, *data)
    assert free.map.name == "vector"
    assert "left out" not in choice.reason


def test_map_of_lower_accuracy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its NLL is lower, because it is less sure where it is wrong."""
    logits, labels = draw(1000, 3, 1.0)
    logits *= 5
    exchanged = np.arange(1000) % 10 == 0

    def log_probabilities(self: Vector, ops: Any, z: Any, parameters: Any) -> Any:
        rows = np.isin(z[:, 0], logits[exchanged, 0])
        z = np.where(rows[:, None], 0.1 * z[:, [1, 2, 0]], z / 5)
        return scipy.special.log_softmax(z, axis=1)

    monkeypatch.setattr(Vector, "log_probabilities", log_probabilities)
    monkeypatch.setattr(Temperature, "log_probabilities", lambda self, ops, z, p: 0 * z - np.log(3))
    vector = Candidate(Vector(), configure_pair("vector", "nll", {})[1])
    winner, choice = choose([vector], logits, labels, smooths=False)
    assert winner.map.preserves_accuracy
    assert "is refused: accuracy lower by" in choice.reason


def test_identity_is_a_candidate() -> None:
    """For a calibrated classifier, a fitted temperature is at best as good as none."""
    identity = by_map(auto(draw(120, 5, 1.0, seed=4)))["identity"]
    assert identity.nll is not None


def test_mixture_is_better_than_its_members() -> None:
    """Half of the rows have noise instead of a temperature: no single map describes both."""
    logits, labels = draw_with_wrong_labels(3000, 4, 0.2)
    logits = logits * np.where(np.arange(3000) % 2, 1, 3)[:, None]
    calibrator = fit(logits, labels, "auto")
    choice = calibrator.card.choice
    assert choice is not None
    assert choice.map == "stack"
    winner = winner_of(choice, "may_change")
    assert sum(winner.members.values()) == pytest.approx(1)
    assert min(winner.members.values()) >= 0.05
    weights = {c.map: c.weight for c in choice.candidates if c.chosen}
    assert weights == winner.members
    members = calibrator.card.options["members"]
    assert {member["map"]: member["weight"] for member in members} == weights
    for result in choice.candidates:
        if result.nll is not None:
            assert winner.nll.value <= result.nll.value


def test_few_rows_prefer_temperature() -> None:
    """Thirty rows show that a classifier is overconfident, and little more."""
    chosen = [
        auto(draw(30, classes, 3.0, seed=seed)).map for seed in range(3) for classes in (2, 5)
    ]
    assert chosen.count("temperature") >= 4
    assert "identity" not in chosen
    results = by_map(auto(draw(30, 5, 3.0)))
    assert results["vector"].verdict == "30 rows are fewer than 100"
    assert results["parameterized_temperature"].nll is None


def test_predictions_change_only_when_allowed() -> None:
    data = off_by_class(400, 4)
    calibrator = fit(*data, "auto", preserve_accuracy=True)  # predictions="keep"
    assert calibrator.map.preserves_accuracy
    predicted = calibrator.predict(data[0]).argmax(axis=1)
    assert (predicted == data[0].argmax(axis=1)).all()
    assert calibrator.card.choice is not None
    assert calibrator.card.choice.predictions == "keep"
    assert calibrator.card.choice.preserve_accuracy
    free = auto(data)
    assert (free.predictions, free.preserve_accuracy) == ("may_change", False)
    assert free.map != "temperature"


def test_order_of_two_classes_is_kept() -> None:
    logits, labels = wrong_base_rate(2000)
    calibrator = fit(logits, labels, "auto", predictions="keep_order")
    order = np.argsort(logits[:, 1] - logits[:, 0])
    assert (np.diff(calibrator.predict(logits)[order, 1]) >= 0).all()
    assert calibrator.card.choice is not None
    assert winner_of(calibrator.card.choice, "keep_order").chosen
    with pytest.raises(InputError, match="keep_order with 3 classes"):
        fit(*draw(50, 3, 1.0), "auto", predictions="keep_order")


def test_race_and_choice_repeat_bit_for_bit() -> None:
    data = off_by_class(1500, 4)
    first, second = (fit(*data, "auto") for _ in range(2))
    assert first.parameters.keys() == second.parameters.keys()
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name])
    assert first.card.options == second.card.options
    dropped = [c for c in first.card.choice.candidates if "cannot win" in c.verdict]  # type: ignore[union-attr]
    assert dropped
    assert all(candidate.nll is None for candidate in dropped)


def test_strength_of_a_penalty_is_that_of_all_rows() -> None:
    """Few rows prefer a strong penalty: 1,000 of these take ten times as much as all."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(4000, 8)) * 2
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = truth @ (np.eye(8) + 0.05 * rng.normal(size=(8, 8)))
    candidate = Candidate(*configure_pair("structured_matrix", "nll", {}))
    race = Race(logits, labels, None, random_folds(4000))
    of_race = race.with_strength(Entry(candidate, np.empty((0, 8), np.float32)))
    few = candidate.with_strength(logits[:1000], labels[:1000])
    assert of_race == candidate.with_strength(logits, labels)
    assert of_race.map.strength < few.map.strength / 5  # type: ignore[attr-defined]


def test_candidates_after_the_time_do_not_compete() -> None:
    choice = auto(draw(300, 4, 2.0), max_seconds=1e-9)
    assert choice.map in ("identity", "temperature")
    assert "max_seconds=1e-09 were over" in by_map(choice)["vector"].verdict


def test_probabilities_of_exactly_zero_are_smoothed() -> None:
    """As of a forest: one row with a probability of 0 does not decide the fit of the others."""
    rng = np.random.default_rng(0)
    votes = rng.binomial(10, rng.beta(0.4, 0.4, 1000))
    p = np.stack([1 - votes / 10, votes / 10], axis=1)
    labels = (rng.random(1000) < (votes + 0.5) / 11).astype(int)
    calibrator = fit(p, labels, "auto", input="probabilities")
    choice = calibrator.card.choice
    assert choice is not None
    assert choice.smoothing == pytest.approx(1 / 1001)
    assert calibrator.card.options["smoothing"] == choice.smoothing
    assert "mixed with 0.001 of uniform ones" in choice.reason
    nll = -np.log(calibrator.predict(p)[np.arange(1000), labels]).mean()
    plain = -np.log(fit(p, labels, "vector", input="probabilities").predict(p))
    assert nll < plain[np.arange(1000), labels].mean() - 0.05


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_without_an_error_give_the_identity_the_share_of_laplace(classes: int) -> None:
    """The classifier is far too timid, and no row limits a temperature."""
    logits, _ = draw(300, classes, 1.0)
    labels = logits.argmax(axis=1)
    calibrator = fit(logits * 0.1, labels, "auto")
    choice = calibrator.card.choice
    assert choice is not None
    share = 1 / (np.bincount(labels).min() + 1)
    for winner in choice.winners:
        assert winner.members == pytest.approx({"temperature": 1 - share, "identity": share})
    assert "determine no temperature" in choice.reason
    assert "determine no temperature" in by_map(choice)["vector"].verdict
    test, _ = draw(300, classes, 1.0, seed=1)
    p = calibrator.predict(test * 0.1)[np.arange(300), test.argmax(axis=1)]
    own = scipy.special.softmax(test * 0.1, axis=1).max(axis=1)
    assert np.median((1 - p) / (1 - own)) == pytest.approx(share, rel=1e-2)
    assert -np.log(p).mean() < 0.02  # the classifier's own is .53 for two classes


def test_class_without_rows_leaves_the_identity() -> None:
    """Every row is right, but no row tests the prediction of class 2."""
    logits, _ = draw(200, 3, 1.0)
    logits = logits[logits.argmax(axis=1) < 2]
    choice = auto((logits, logits.argmax(axis=1)))
    assert set(winner_of(choice, "may_change").members) == {"identity"}


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_without_an_error_leave_a_bounded_loss(classes: int) -> None:
    """The classifier claims to be certain, and the first new row is wrong."""
    labels = np.random.default_rng(0).integers(0, classes, 150)
    logits = 100.0 * np.eye(classes)[labels]
    p = fit(logits, labels, "auto").predict(logits[:1])
    assert 0 < p.min() < 1e-3
    rarest = np.bincount(labels).min()
    bound = np.log(rarest + 1) + 2 * np.log(151) + np.log(classes)
    assert -np.log(p.min()) <= bound + 1e-6


def test_uninformative_logits_get_nearly_uniform_probabilities() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(300, 4)) * 3
    labels = (logits.argmin(axis=1) + rng.integers(0, 2, 300)) % 4
    calibrator = fit(logits, labels, "auto", predictions="keep")
    assert calibrator.card.map != "identity"
    np.testing.assert_allclose(calibrator.predict(logits), 0.25, atol=0.01)


@pytest.mark.parametrize("rows", [1, 4])
def test_very_few_rows_are_not_compared(rows: int) -> None:
    choice = auto(draw(rows, 3, 1.0))
    assert (choice.map, choice.folds, choice.rows) == ("identity", 0, rows)
    assert choice.reason == f"identity: fewer than 5 rows: {rows}"
    assert all(candidate.nll is None for candidate in choice.candidates)


def test_weights_that_leave_very_few_rows_are_not_compared() -> None:
    weights = np.ones(300)
    weights[0] = 1e6
    choice = fit(*draw(300, 3, 1.0), "auto", sample_weight=weights).card.choice
    assert choice is not None
    assert choice.reason == "identity: fewer than 5 effective rows: 1"


def test_a_tie_leaves_the_reference() -> None:
    """Several maps are uniform, or nearly so, where logits of rows are equal."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 40))
    choice = auto((np.zeros((120, 3)), labels))
    assert set(winner_of(choice, "may_change").members) <= {"identity", "temperature"}
    logits, labels = draw(600, 4, 2.0)
    choice = auto((logits, labels), predictions="keep")
    assert set(winner_of(choice, "keep").members) == {"temperature"}


@pytest.mark.slow
def test_scores_match_a_loop() -> None:
    """Each fold under a fit to the others; the interval of a mean is about ±1.96 errors."""
    logits, labels = draw(400, 4, 2.0)
    choice = auto((logits, labels))
    folds = random_folds(len(labels), fitted_rows=6_000)
    nll, brier = np.empty(400), np.empty(400)
    for fold in range(5):
        out = folds == fold
        p = fit(logits[~out], labels[~out]).predict(logits[out])
        right = np.eye(4)[labels[out]]
        nll[out] = -np.log(p[right == 1])
        brier[out] = ((p - right) ** 2).sum(axis=1)
    result = by_map(choice)["temperature"]
    for scores, measured in ((nll, result.nll), (brier, result.brier)):
        assert measured is not None
        assert measured.value == pytest.approx(scores.mean(), rel=1e-6)
        reach = 1.96 * scores.std() / 20
        assert measured.low == pytest.approx(scores.mean() - reach, abs=0.15 * reach)
        assert measured.high == pytest.approx(scores.mean() + reach, abs=0.15 * reach)
    # The difference is paired: by far narrower than either score.
    plain = -scipy.special.log_softmax(logits, axis=1)[np.arange(400), labels]
    difference = by_map(choice)["identity"].nll_difference
    assert difference is not None
    assert difference.low is not None
    assert difference.value == pytest.approx((plain - nll).mean(), rel=1e-4)
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
        if other.nll is None:
            continue
        assert candidate.nll is not None
        # Rounding decides where network fits stop.
        assert candidate.nll.value == pytest.approx(other.nll.value, rel=1e-6)


@pytest.mark.slow
def test_many_logits_are_subsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the fit are a tenth of those that users get, and so is its time."""
    module = importlib.import_module("recalib.fitting.auto")
    assert [len(module._rows_of(n, 3000, None)) for n in (900, 1100)] == [900, 1000]
    monkeypatch.setattr(module, "_ENOUGH_ROWS", 100)
    monkeypatch.setattr(module, "_MAX_LOGITS", 200_000)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(110, 3000)).astype(np.float32) * 3
    choice = auto((logits, rng.integers(0, 3000, 110)))
    assert choice.rows == 100
    assert "9,003,001 numbers are more" in by_map(choice)["structured_matrix"].verdict
    assert by_map(choice)["temperature"].nll is not None


@pytest.mark.slow
def test_objective_applies_to_all_candidates() -> None:
    """Held-out NLL decides; maps that the objective cannot fit are excluded."""
    choice = auto(draw(150, 4, 2.0), objective="brier")
    assert {
        candidate.objective for candidate in choice.candidates if candidate.map != "identity"
    } == {"brier"}
    grid = auto(draw(150, 4, 2.0), objective="ece_grid")
    assert {"temperature", "class_temperature"} <= set(by_map(grid)) <= {
        "identity", "temperature", "class_temperature"
    }  # fmt: skip


@pytest.mark.parametrize("is_right", [False, True])
def test_objective_fits_the_choice_where_probabilities_are_zero(is_right: bool) -> None:
    """A stack mixes uniform probabilities in, and is fitted by NLL: no stack is the choice."""
    votes = np.random.default_rng(0).integers(0, 11, 200)
    p = np.stack([1 - votes / 10, votes / 10], axis=1)
    labels = (votes > 5) ^ ((np.arange(200) % 10 == 0) & (not is_right))
    choice = auto((p, labels.astype(int)), objective="brier", input="probabilities")
    assert (choice.objective, choice.smoothing) == ("brier", 0)


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
    assert any(message.startswith("structured_matrix, fold 5 of 5: ") for message in messages)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"preserve_accuracy": "maybe"}, "options"),
        ({"predictions": "some"}, "options"),
        ({"predictions": "keep", "preserve_accuracy": True}, "predictions"),
        ({"max_seconds": 0}, "options.max_seconds"),
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
