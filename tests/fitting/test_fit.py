"""Fits of any map: optimality, the card, and invalid input."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import recalib
from recalib.drift.reference_histogram import reference_histogram
from recalib.errors import InputError, RecalibWarning
from recalib.fitting.fit import fit
from recalib.fitting.linear_maps import LINEAR_MAPS
from recalib.fitting.problem import Problem
from recalib.fitting.request import configure_pair
from recalib.fitting.solvers import solve
from recalib.maps import MAPS
from recalib.metrics.evaluate import evaluate
from recalib.objectives import OBJECTIVES
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw

GRADIENT_MAPS = [name for name in MAPS if MAPS[name].fitted_by == "gradient"]
SMOOTH = [o for o in OBJECTIVES if OBJECTIVES[o].smooth and not OBJECTIVES[o].top_label_only]
#: Every map by NLL, and each other objective with a third of the maps, in turn.
SMOOTH_PAIRS = [
    (name, objective)
    for i, name in enumerate(GRADIENT_MAPS)
    for j, objective in enumerate(SMOOTH)
    if objective == "nll" or (i + j) % 3 == 0
]


def value_at(the_map, the_objective, parameters, logits, labels) -> float:
    ops = NumpyOps()
    log_p = the_map.log_probabilities(ops, logits, the_map.constants(ops, parameters))
    loss = the_objective.loss(ops, log_p, labels, np.ones(len(labels)))
    return float(loss + the_map.penalty(ops, parameters, len(labels)))


@pytest.mark.parametrize(("name", "objective"), SMOOTH_PAIRS)
def test_no_step_away_improves_the_objective(name: str, objective: str, known) -> None:
    """A fit ends at a minimum: small legal steps never lower the objective."""
    logits, labels = known
    the_map, the_objective = configure_pair(name, objective, {})
    fitted = solve(Problem(the_map, the_objective, logits, labels))
    assert fitted.converged
    the_map, the_objective = configure_pair(name, objective, fitted.settled)
    best = value_at(the_map, the_objective, fitted.parameters, logits, labels)
    assert fitted.objective == pytest.approx(best, rel=1e-7)
    rng = np.random.default_rng(0)
    specifications = the_map.parameters(6)
    last_fitted = the_map.stages(6)[-1]
    for _ in range(20 if specifications else 0):
        moved = dict(fitted.parameters)
        for key in last_fitted:
            value = fitted.parameters[key]
            noisy = value * np.exp(rng.normal(size=value.shape) * 1e-2)
            moved[key] = noisy / noisy.sum() if specifications[key].link == "simplex" else noisy
        assert value_at(the_map, the_objective, moved, logits, labels) >= best - 1e-9


def test_class_temperatures_are_recovered() -> None:
    """A fit recovers known class temperatures within sampling error."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(30_000, 3)) * 3
    truth = np.array([1.0, 2.0, 4.0])
    labels = (logits / truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    calibrator = fit(logits, labels, "class_temperature")
    np.testing.assert_allclose(calibrator.parameters["temperature"], truth, rtol=0.05)


def test_ensemble_recovers_the_weight_of_the_uniform_part() -> None:
    """With a fifth of the labels random, w₃ is about 0.2, and the fit beats one temperature."""
    logits, labels = draw(15_000, 5, 1.0)
    rng = np.random.default_rng(1)
    noise = rng.random(len(labels)) < 0.2
    labels = np.where(noise, rng.integers(0, 5, len(labels)), labels)
    ensemble = fit(logits, labels, "ensemble_temperature")
    single = fit(logits, labels, "temperature")
    assert ensemble.parameters["weights"][2] == pytest.approx(0.2, abs=0.03)
    assert ensemble.card.fit.objective < single.card.fit.objective - 0.01


def test_ensemble_is_never_worse_than_its_temperature(known) -> None:
    logits, labels = known
    ensemble = fit(logits, labels, "ensemble_temperature")
    single = fit(logits, labels, "temperature")
    assert ensemble.card.fit.objective <= single.card.fit.objective + 1e-9


def test_card_describes_the_fit(known) -> None:
    logits, labels = known
    card = fit(logits, labels, measure=True).card
    assert (card.map, card.objective, card.classes, card.data.rows) == (
        "temperature",
        "nll",
        6,
        2000,
    )
    assert (card.options, card.objective_options) == ({}, {})
    assert card.library == recalib.__version__
    assert card.metrics["after"]["nll"].value < card.metrics["before"]["nll"].value
    assert card.metrics["after"]["nll"].value == pytest.approx(card.fit.objective, rel=1e-6)
    for when in ("before", "after"):
        ece = card.metrics[when]["ece"]
        assert ece.low <= ece.value <= ece.high
        assert ece.floor > 0


def test_card_without_metrics_has_the_confidences(known) -> None:
    logits, labels = known
    card, measured = fit(logits, labels).card, fit(logits, labels, measure=True).card
    assert card.metrics == {}
    assert card.confidences == measured.confidences


def test_confidences_of_many_numbers_are_those_of_float64() -> None:
    logits, labels = draw(11_000, 100, 1.0)
    fitted = fit(logits, labels)
    confidences = fitted.predict(logits.astype(np.float64)).max(axis=1)
    expected = reference_histogram(confidences)
    assert fitted.card.confidences is not None
    np.testing.assert_allclose(fitted.card.confidences.edges, expected.edges, atol=1e-6)
    np.testing.assert_allclose(fitted.card.confidences.counts, expected.counts, atol=2)


@pytest.mark.parametrize(("rows", "is_rounded"), [(500, False), (501, True)])
def test_metrics_above_a_million_logits_are_those_of_rounded_probabilities(
    rows: int, is_rounded: bool
) -> None:
    """Up to a million logits they are those of float64, before and after the map.

    Sums over rows are float64, so rounded probabilities change the last digits of a mean.
    """
    logits, labels = draw(rows, 2_000, 1.5)
    calibrator = fit(logits, labels, measure=True)
    exact = calibrator.predict(logits)
    names = ["nll", "ece"]

    def values_of(evaluation) -> list[float]:
        return [evaluation[name].value for name in names]

    def measure(probabilities) -> list[float]:
        return values_of(evaluate(labels, probabilities=probabilities, metrics=names))

    after = values_of(calibrator.card.metrics["after"])
    assert exact.dtype == np.float64
    assert (after == measure(exact)) != is_rounded
    assert (after == measure(exact.astype(np.float32))) == is_rounded
    before = values_of(calibrator.card.metrics["before"])
    expected = values_of(evaluate(labels, logits=logits, metrics=names))
    assert (before == expected) != is_rounded
    assert before == pytest.approx(expected, rel=1e-5)


def test_probabilities_in_place_of_logits_are_refused(known) -> None:
    """Rounded ones, whose sums are 1 only roughly, and predictions warn."""
    logits, labels = known
    probabilities = NumpyOps().softmax(logits)
    with pytest.raises(InputError, match=r"sums to 1; accepted: .* write input=.probabilities."):
        fit(probabilities, labels)
    fitted = fit(probabilities * np.linspace(0.995, 1.005, 2000)[:, None], labels)
    assert 'write input="probabilities"' in fitted.card.fit.warnings[-1]
    assert "sums to 1" in fitted.card.fit.warnings[-1]
    with pytest.warns(RecalibWarning, match="takes logits"):
        fitted.predict(probabilities)
    assert fit(probabilities, labels, input="logits").card.fit.warnings == ()


def test_one_hot_rows_and_rows_near_one_are_logits() -> None:
    one_hot = np.eye(3)[[0, 1, 2, 0, 1, 2, 2]]
    assert not fit(one_hot, [0, 1, 2, 0, 1, 2, 1]).card.fit.warnings
    rows = np.array([[0.5, 0.5], [0.2, 0.9], [0.3, 0.6], [0.7, 0.2]])
    assert not fit(rows, [0, 1, 1, 1]).card.fit.warnings


def test_prediction_takes_what_the_fit_took(known) -> None:
    logits, labels = known
    probabilities = NumpyOps().softmax(logits)
    fitted = fit(probabilities, labels, "class_temperature", input="probabilities")
    expected = fitted.predict(probabilities, input="probabilities")
    np.testing.assert_array_equal(fitted.predict(probabilities), expected)
    np.testing.assert_array_equal(fitted.predict_proba(probabilities), expected)


def test_evaluation_is_that_of_the_calibrated_probabilities(known) -> None:
    logits, labels = known
    fitted = fit(logits, labels)
    p, metrics = fitted.predict(logits), ["nll", "ece"]
    for parts in ({}, {"intervals": True}, {"floors": True}, {"intervals": True, "floors": False}):
        evaluation = fitted.evaluate(logits, labels, metrics=metrics, **parts)
        assert evaluation == recalib.evaluate(labels, p, metrics=metrics, **parts)


def test_calibrators_are_pickled_copied_and_compared(known) -> None:
    logits, labels = known
    fitted = fit(logits, labels)
    batch = logits.astype(np.float32)
    expected = fitted.predict(batch)  # creates the session
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert copied == fitted
        assert hash(copied) == hash(fitted)
        np.testing.assert_array_equal(copied.predict(batch), expected)
    assert fitted != fit(logits[:1000], labels[:1000])
    assert fitted != "temperature"


def test_unknown_name_suggests_the_nearest() -> None:
    names = {"temprature": "temperature", "Vector": "vector", "SMS": "structured_matrix"}
    for name, suggestion in names.items():
        with pytest.raises(InputError, match=rf"did you mean {suggestion}\? Names: identity, "):
            fit([[0.0, 1.0]], [1], name)
    with pytest.raises(InputError, match="did you mean vector, which is Platt scaling for scores"):
        fit([[0.0, 1.0]], [1], "Platt")
    for name in ("weights", "sample_weight"):
        with pytest.raises(InputError, match=rf"^{name}\[0\]: found -1"):
            fit([[0.0, 1.0]], [1], **{name: [-1.0]})
    with pytest.raises(InputError, match=r"did you mean bins\? Names: "):
        fit([[0.0, 1.0]], [1], "histogram_binning", bin=3)


def test_vector_is_platt_scaling_of_binary_scores(known) -> None:
    """The reason that the suggestion for "platt" gives."""
    logits, labels = known
    scores, positives = logits[:, 1] - logits[:, 0], labels == 1
    fitted = fit(scores, positives, map="vector")
    logistic = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, None], positives)
    np.testing.assert_allclose(
        fitted.predict(scores), logistic.predict_proba(scores[:, None]), atol=1e-4
    )


def test_card_includes_default_options(known) -> None:
    logits, labels = known
    fitted = fit(logits[:200], labels[:200], map="matrix", objective="sb_ece", bins=20)
    assert fitted.card.objective_options["bins"] == 20
    assert fitted.card.objective_options["order"] == 2
    assert set(fitted.card.options) == {"off_diagonal", "intercept", "diagonal"}
    assert recalib.Calibrator.from_bytes(fitted.to_bytes()).map == fitted.map


def test_bounds_and_too_few_rows_are_reported() -> None:
    logits, _ = draw(3, 5, 1.0)
    card = fit(logits, logits.argmax(axis=1)).card
    assert "lower bound" in card.fit.bounds_reached[0]
    assert any("3 rows for 5 classes" in text for text in card.fit.warnings)
    assert any("never occur" in text for text in card.fit.warnings)


def test_probabilities_are_taken_as_log_probabilities(known) -> None:
    logits, labels = known
    ops = NumpyOps()
    by_logits = fit(logits, labels)
    by_probabilities = fit(ops.softmax(logits), labels, input="probabilities")
    assert by_probabilities.card.input == "probabilities"
    np.testing.assert_allclose(
        by_probabilities.parameters["temperature"], by_logits.parameters["temperature"], rtol=1e-6
    )
    np.testing.assert_allclose(
        by_probabilities.predict(ops.softmax(logits), input="probabilities"),
        by_logits.predict(logits),
        rtol=1e-6,
    )


def test_logits_are_rejected_by_a_shift_dependent_map_fitted_on_probabilities(known) -> None:
    logits, labels = known
    fitted = fit(NumpyOps().softmax(logits), labels, "class_temperature", input="probabilities")
    with pytest.raises(InputError, match="fitted on probabilities"):
        fitted.predict(logits, input="logits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"map": "magic"}, r"map: found 'magic'; accepted: identity, temperature"),
        ({"objective": "luck"}, r"objective: found 'luck'; accepted: nll"),
        ({"bins": 3}, r"options.bins: found an unknown option; accepted: none"),
        ({"objective": "sb_ece", "bins": 0}, r"options.bins: found 0; accepted: at least 1"),
        ({"objective": "focal", "gamma": -1.0}, r"options.gamma: found -1; accepted: at least 0"),
        ({"objective": "sb_ece", "variant": "odd"}, r"options: found Invalid enum value 'odd'"),
        (
            {"map": "ensemble_temperature", "objective": "ece_grid"},
            r"objective: found 'ece_grid' for the map ensemble_temperature; accepted: a grid",
        ),
        ({"input": "guess"}, r"input: found 'guess'; accepted: logits or probabilities"),
    ],
)
def test_unknown_names_and_options_are_rejected(arguments: dict, message: str, known) -> None:
    with pytest.raises(InputError, match=message):
        fit(*known, **arguments)


@pytest.mark.slow
def test_solvers_and_metrics_load_neither_torch_nor_sklearn() -> None:
    """Fit and apply linear maps and maps with a solver, and evaluate, in another process."""
    program = (
        "import sys, numpy as np, recalib\n"
        "z = np.random.default_rng(0).normal(size=(50, 3)); y = z.argmax(1); y[:9] = 0\n"
        "for name in sys.argv[1:]: recalib.fit(z, y, name).predict(z.astype('float32'))\n"
        "recalib.evaluate(y, logits=z)\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules)"
    )
    names = {name for name, the_map in MAPS.items() if the_map.fitted_by == "solver"}
    names |= {"temperature"} | (set(LINEAR_MAPS) & set(MAPS))
    subprocess.run([sys.executable, "-c", program, *sorted(names)], check=True)


@pytest.fixture(scope="module")
def splits(real_data):
    """Return validation and test logits of a published network, with published results."""
    with (
        np.load(real_data / "resnet110-cifar10-val.npz") as val,
        np.load(real_data / "resnet110-cifar10-test.npz") as test,
    ):
        return (val["logits"], val["labels"]), (test["logits"], test["labels"])


def test_temperature_of_real_logits(splits) -> None:
    validation, (logits, labels) = splits
    calibrator = fit(*validation)
    assert float(calibrator.parameters["temperature"]) == pytest.approx(2.3950, abs=5e-5)
    metrics = recalib.evaluate(labels, probabilities=calibrator.predict(logits))
    assert metrics["accuracy"] == pytest.approx(0.9356)
    assert metrics["nll"] == pytest.approx(0.20926, abs=5e-6)
    assert metrics["ece"] == pytest.approx(0.0113, abs=5e-5)


def test_class_temperatures_of_real_logits(splits) -> None:
    validation, (logits, labels) = splits
    calibrator = fit(*validation, map="class_temperature")
    metrics = recalib.evaluate(labels, probabilities=calibrator.predict(logits))
    assert metrics["accuracy"] == pytest.approx(0.9343)
    assert 0.01295 <= metrics["ece"] <= 0.01315
