"""Independent labels: fits, predictions and metrics against independent formulas."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import astuple
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import scipy

import recalib
from recalib.errors import InputError, RecalibWarning
from recalib.fitting.fit import fit as fit_calibrator
from recalib.maps.labels import LABEL_MAPS
from recalib.metrics.multilabel import LABEL_METRICS, LabelPredictions, evaluate_labels
from recalib.metrics.paired import paired_changes
from recalib.metrics.paired_labels import paired_label_changes
from service.calibrators.parameter_file import check_parameter_file

#: The true log-odds of label k are SLOPE[k] z_k + BIAS[k].
SLOPE, BIAS = np.array([0.4, 1.0, 0.7, 2.0]), np.array([0.0, -1.5, 1.0, -3.0])


def draw_labels(rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds and labels (N, 4)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 4)) * 2
    return z, rng.random(z.shape) < scipy.special.expit(SLOPE * z + BIAS)


def fit(map: str, z: np.ndarray, y: np.ndarray, **options) -> recalib.Calibrator:
    return fit_calibrator(z, y, map, task="multilabel", **options)


def nll(p: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(np.where(y, p, 1 - p)).mean())


def test_platt_matches_a_general_optimiser() -> None:
    z, y = draw_labels()
    calibrator = fit("platt", z, y)
    for k in range(4):

        def loss(theta: np.ndarray, k: int = k) -> float:
            score = theta[0] * z[:, k] + theta[1]
            penalty = 0.5 * ((theta[0] - 1) ** 2 + theta[1] ** 2 / 4)
            return float(np.logaddexp(0, np.where(y[:, k], -score, score)).sum() + penalty)

        best = scipy.optimize.minimize(loss, [1.0, 0.0], tol=1e-10).x
        found = [calibrator.parameters[name][k] for name in ("slope", "bias")]
        np.testing.assert_allclose(found, best, atol=1e-4)
    np.testing.assert_allclose(calibrator.parameters["slope"], SLOPE, atol=0.3)
    np.testing.assert_allclose(calibrator.parameters["bias"], BIAS, atol=0.4)


def test_temperature_matches_a_scalar_search() -> None:
    z, y = draw_labels()
    fitted = fit("temperature", z, y).parameters["temperature"]
    for k, temperature in enumerate(fitted):
        best = scipy.optimize.minimize_scalar(
            lambda t, k=k: nll(scipy.special.expit(z[:, k] / t), y[:, k]), bounds=(0.1, 20)
        )
        assert temperature == pytest.approx(best.x, rel=1e-3)


@pytest.mark.parametrize("map", LABEL_MAPS)
def test_files_and_graphs_keep_the_task(map: str, tmp_path: Path) -> None:
    """Float32 by onnxruntime equals float64 by NumPy; probabilities of a row have no fixed sum."""
    z, y = draw_labels()
    calibrator = fit(map, z, y)
    calibrator.save(tmp_path / "a.calib")
    loaded = recalib.load(tmp_path / "a.calib")
    assert loaded == calibrator == pickle.loads(pickle.dumps(calibrator)) == copy.copy(calibrator)
    assert loaded.card.task == "multilabel"
    p = loaded.predict(z)
    assert p.dtype == np.float64
    assert p.shape == z.shape
    assert p.min() >= 0
    assert p.max() <= 1
    assert np.ptp(p.sum(axis=1)) > 0.5
    graph = loaded.to_onnx()
    model = onnx.load_from_string(graph)
    cards = [entry.value for entry in model.metadata_props if entry.key == "recalib.core.card"]
    assert json.loads(cards[0])["task"] == "multilabel"
    session = onnxruntime.InferenceSession(graph)
    (served,) = session.run(None, {"logits": z.astype(np.float32)})
    np.testing.assert_allclose(served, p, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(loaded.predict(z.astype(np.float32)), served)
    extreme = np.array([[1e4, -1e4, 500.0, -500.0]])
    assert np.isfinite(loaded.predict(extreme)).all()


@pytest.mark.parametrize("map", [name for name in LABEL_MAPS if name != "identity"])
def test_each_column_is_fitted_by_itself(map: str) -> None:
    """Permuting labels permutes the result, other columns have no effect, and NLL falls."""
    z, y = draw_labels()
    p = fit(map, z, y).predict(z)
    assert nll(p, y) < nll(scipy.special.expit(z), y) - 0.02
    order = [2, 0, 3, 1]
    np.testing.assert_array_equal(
        fit(map, z[:, order], y[:, order]).predict(z[:, order]), p[:, order]
    )
    np.testing.assert_array_equal(fit(map, z[:, :2], y[:, :2]).predict(z[:, :2]), p[:, :2])
    rising = np.argsort(z[:, 0])
    assert (np.diff(p[rising, 0]) >= -1e-12).all()


@pytest.mark.parametrize("map", LABEL_MAPS)
def test_weight_two_equals_a_copy(map: str) -> None:
    z, y = draw_labels(600)
    weights = np.where(np.arange(600) < 200, 2.0, 1.0)
    copies = np.concatenate([z, z[:200]]), np.concatenate([y, y[:200]])
    weighted = fit(map, z, y, sample_weight=weights).predict(z)
    # Penalty and smoothing count as one row, and weights have mean 1, so both differ a little.
    assert np.abs(weighted - fit(map, *copies).predict(z)).mean() < 3e-3
    assert map == "identity" or np.abs(weighted - fit(map, z, y).predict(z)).mean() > 3e-3


def test_constant_label_keeps_its_probability() -> None:
    z, y = draw_labels(300)
    y[:, 1] = False
    for map in LABEL_MAPS:
        calibrator = fit(map, z, y)
        expected = scipy.special.expit(z[:, 1])
        np.testing.assert_allclose(calibrator.predict(z)[:, 1], expected, atol=1e-9)
        assert "1 of 4 labels are the same in all rows" in calibrator.card.fit.warnings[0]


def test_probabilities_are_taken_as_their_log_odds() -> None:
    z, y = draw_labels(500)
    p = scipy.special.expit(z)
    by_logits, by_probabilities = fit("platt", z, y), fit("platt", p, y, input="probabilities")
    np.testing.assert_allclose(by_probabilities.predict(p), by_logits.predict(z), rtol=1e-9)
    np.testing.assert_allclose(by_logits.predict(p, input="probabilities"), by_logits.predict(z))
    certain = by_probabilities.predict(np.array([[0.0, 1.0, 0.0, 1.0]]))
    assert np.isfinite(certain).all()
    assert "all are between 0 and 1" in fit("platt", p, y).card.fit.warnings[-1]
    with pytest.warns(RecalibWarning, match="all are between 0 and 1"):
        by_logits.predict(p)


def test_frames_keep_names_and_index() -> None:
    z, y = draw_labels(200)
    frame = pd.DataFrame(z, columns=["cat", "dog", "owl", "fox"], index=np.arange(200) + 7)
    calibrator = fit("beta", frame, pd.DataFrame(y))
    assert calibrator.card.labels == ("cat", "dog", "owl", "fox")
    answer = calibrator.predict(frame)
    assert list(answer.columns) == list(frame.columns)
    assert answer.index.equals(frame.index)
    result = recalib.evaluate(y, answer, task="multilabel")
    assert list(result.labels) == list(frame.columns)


def test_metrics_match_loops() -> None:
    z, y = draw_labels(400)
    p = np.round(scipy.special.expit(z), 3)
    result = recalib.evaluate(y, p, task="multilabel", metrics=["accuracy", "nll", "brier", "ece"])
    for k in range(4):
        bins = [[0, 0.0, 0] for _ in range(15)]
        for row in range(400):
            place = max(int(np.ceil(p[row, k] * 15)) - 1, 0)
            bins[place][0] += 1
            bins[place][1] += p[row, k]
            bins[place][2] += y[row, k]
        values = result.labels[str(k)]
        assert values["ece"] == pytest.approx(sum(abs(hits - s) for _, s, hits in bins) / 400)
        assert values["accuracy"] == np.mean((p[:, k] > 0.5) == y[:, k])
        clipped = np.clip(p[:, k], 1e-38, 1 - 1e-16)
        assert values["nll"] == pytest.approx(nll(clipped, y[:, k]), rel=1e-6)
        assert values["brier"] == pytest.approx(2 * np.mean((p[:, k] - y[:, k]) ** 2))
    for name, average in result.items():
        each = [result.labels[str(k)][name] for k in range(4)]
        assert average == pytest.approx(np.mean(each))


def test_weighted_metrics_are_those_of_repeated_rows() -> None:
    z, y = draw_labels(200)
    weights = np.where(np.arange(200) < 50, 3, 1)
    rows = np.repeat(np.arange(200), weights)
    weighted = recalib.evaluate(y, logits=z, sample_weight=weights, task="multilabel")
    repeated = recalib.evaluate(y[rows], logits=z[rows], task="multilabel")
    for name in ("accuracy", "nll", "brier", "ece"):
        assert weighted[name] == pytest.approx(repeated[name])


def test_intervals_and_floors_of_labels_and_means() -> None:
    z, y = draw_labels(300)
    result = recalib.evaluate(y, logits=z, task="multilabel", metrics=LABEL_METRICS, intervals=True)
    for estimates in (result, *result.labels.values()):
        assert all(item.low <= item.value <= item.high for item in estimates.values())
    rows = 2 * ((scipy.special.expit(z) - y) ** 2).mean(axis=1)
    interval = scipy.stats.ttest_1samp(rows, 0).confidence_interval(0.95)
    assert (result["brier"].low, result["brier"].high) == pytest.approx(tuple(interval))
    floors = [estimates["ece"].floor for estimates in result.labels.values()]
    assert result["ece"].floor == pytest.approx(np.mean(floors))


def test_mean_of_equal_labels_has_the_interval_of_one() -> None:
    """Labels of a row are no independent evidence, so equal labels do not narrow the interval."""
    z, y = (np.repeat(array[:, :1], 5, axis=1) for array in draw_labels(300))
    result = recalib.evaluate(y, logits=z, task="multilabel", intervals=True)
    for name in ("accuracy", "nll", "brier", "ece"):
        for mean, one in zip(astuple(result[name]), astuple(result.labels["0"][name]), strict=True):
            assert mean == (None if one is None else pytest.approx(one))


def test_interval_of_an_accuracy_near_one_covers_it() -> None:
    """Labels of a row are all right, or all wrong with a probability of 1%."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(300):
        y = np.repeat(rng.random((100, 1)) < 0.99, 4, axis=1)
        accuracy = evaluate_labels(
            LabelPredictions.from_scores(np.ones(y.shape), y, input="logits"),
            metrics=["accuracy"],
            level=0.95,
        ).average["accuracy"]
        covered += accuracy.low <= 0.99 <= accuracy.high
        if y.all():
            assert accuracy.low < 0.97
    assert covered >= 0.92 * 300


@pytest.mark.parametrize("map", ["temperature", "platt", "beta", "isotonic"])
@pytest.mark.parametrize("earlier", ["identity", "temperature", "platt"])
def test_rare_label_keeps_its_earlier_curve(earlier: str, map: str) -> None:
    """A refit has three rows with label 2; the earlier fit had many."""
    z, y = draw_labels()
    previous = fit(earlier, z, y)
    z, y = draw_labels(seed=1)
    y[:, 2] = np.arange(len(y)) < 3
    refit = fit(map, z, y, start=previous)
    assert "1 of 4 labels have fewer than 10 rows of a value" in refit.card.fit.warnings[0]
    expected, answer = previous.predict(z), refit.predict(z)
    if (earlier, map) == ("platt", "temperature"):  # a line without a bias is nearest
        assert abs((answer - expected)[:, 2]).mean() < 0.2
    else:
        tolerance = 0.03 if map == "isotonic" else 1e-5  # it has few knots
        np.testing.assert_allclose(answer[:, 2], expected[:, 2], atol=tolerance)
    others = [0, 1, 3]
    fitted = fit(map, z, y).predict(z)
    np.testing.assert_allclose(answer[:, others], fitted[:, others], atol=1e-12)


def test_change_of_constant_predictions_is_not_certain() -> None:
    y = np.ones((100, 3), np.bool_)
    items = [LabelPredictions.from_scores(np.full(y.shape, z), y, input="logits") for z in (1, -1)]
    estimates = [evaluate_labels(item, level=0.95) for item in items]
    change = paired_label_changes(*items, *estimates).average["accuracy"]
    assert change.low <= change.value == -1 < change.high < -0.9


def test_changes_are_paired_by_row() -> None:
    z, y = draw_labels(300)
    before = LabelPredictions.from_scores(z, y, input="logits")
    after = LabelPredictions.from_scores(SLOPE * z + BIAS, y, input="logits")
    estimates = [evaluate_labels(item, level=0.95) for item in (before, after)]
    changes = paired_label_changes(before, after, *estimates)
    differences = after.row_means["nll"] - before.row_means["nll"]
    interval = scipy.stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    nll = changes.average["nll"]
    assert (nll.low, nll.high) == pytest.approx(tuple(interval))
    assert nll.verdict == "better"
    for k, label in enumerate(changes.labels):
        single = before.of_label(k, "ece"), after.of_label(k, "ece")
        old, new = (item.labels[k]["ece"] for item in estimates)
        expected = paired_changes(*single, {"ece": old}, {"ece": new})
        assert label["ece"] == expected["ece"]
    for name, change in changes.average.items():
        assert change.low <= change.value <= change.high
        for field in ("value", "low", "high") if name == "ece" else ("value",):
            each = [getattr(label[name], field) for label in changes.labels]
            assert getattr(change, field) == pytest.approx(np.mean(each))
    same = paired_label_changes(before, before, estimates[0], estimates[0])
    assert {change.verdict for change in same.average.values()} == {"equal"}
    other = LabelPredictions.from_scores(z, ~y, input="logits")
    with pytest.raises(InputError, match="other labels"):
        paired_label_changes(before, other, *estimates)


def test_card_has_metrics_on_request() -> None:
    z, y = draw_labels(500)
    card = fit("platt", z, y, measure=True).card
    assert card.metrics["after"]["nll"].value < card.metrics["before"]["nll"].value
    assert card.fit.objective == pytest.approx(card.metrics["after"]["nll"].value, rel=1e-6)
    assert card.confidences is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda z, y: fit("vector", z, y), "map: found 'vector'; accepted: identity"),
        (lambda z, y: fit("plat", z, y), "did you mean platt"),
        (lambda z, y: fit("platt", z, y, objective="brier"), "objective: found 'brier'"),
        (lambda z, y: fit("platt", z, y, knots=8), "knots"),
        (
            lambda z, y: fit("platt", z, y, start=fit("platt", z[:, 1:], y[:, 1:])),
            "start: found platt {} of 3 classes, multilabel; accepted: a multilabel map of 4",
        ),
        (
            lambda z, y: fit("temperature", z, y, start=fit_calibrator(z, y[:, 0])),
            "start: found temperature {} of 4 classes, multiclass; accepted: a multilabel map of 4",
        ),
        (lambda z, y: fit("auto", z, y), "map: found 'auto'; accepted: identity, temperature"),
        (
            lambda z, y: fit("temperature", z, y, objective="ece_grid"),
            "objective: found 'ece_grid'",
        ),
        (
            lambda z, y: fit("platt", z, y[:, 0]),
            "labels: found shape (50,); accepted: shape (50, 4)",
        ),
        (lambda z, y: fit("platt", z, y * 2), "found 2; accepted: 0 or 1"),
        (
            lambda z, y: fit("platt", np.where(np.eye(50, 4), -np.inf, z), y),
            "-inf; accepted: finite log-odds",
        ),
        (lambda z, y: fit("platt", z, y, input="probabilities"), "probabilities between 0 and 1"),
        (lambda z, y: recalib.fit(z, y, task="several"), "task: found 'several'"),
        (lambda z, y: recalib.evaluate(y, z, task="several"), "task: found 'several'"),
        (
            lambda z, y: recalib.evaluate(y, logits=z, task="multilabel", metrics=["aurc"]),
            "metrics: found 'aurc'",
        ),
        (lambda z, y: fit("platt", z, y).predict(z[0]), "found shape (4,)"),
        (lambda z, y: fit("platt", z, y).evaluate(z, y), 'task="multilabel"'),
        (lambda z, y: fit("platt", z, y).to_torch(input="probabilities"), "log-odds of each label"),
        (
            lambda z, y: check_parameter_file(fit("platt", z, y).to_bytes(), 4, None),
            "a multilabel calibrator",
        ),
    ],
)
def test_what_is_not_supported_is_refused(call, text: str) -> None:
    z, y = draw_labels(50)
    with pytest.raises(InputError) as excinfo:
        call(z, y.astype(int))
    assert text in str(excinfo.value)


def test_torch_module_agrees() -> None:
    torch = pytest.importorskip("torch")
    z, y = draw_labels(300)
    for map in LABEL_MAPS:
        calibrator = fit(map, z, y)
        answer = calibrator.to_torch()(torch.from_numpy(z)).detach().numpy()
        np.testing.assert_allclose(answer, calibrator.predict(z), atol=1e-6)


def _calibrated_labels(rows: int, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.5, 1.5, (rows, labels))
    return z, rng.random((rows, labels)) < scipy.special.expit(z)


def test_losses_on_new_rows_are_estimated() -> None:
    """The mean of 20 estimates is within 3 standard errors of the mean of the true differences."""
    errors = []
    for seed in range(20):
        z, y = _calibrated_labels(200, 5, seed)
        calibrator = recalib.fit(z, y, "platt", task="multilabel")
        estimate = calibrator.card.fit.estimates["nll"]
        new = _calibrated_labels(20_000, 5, 100)[0]
        p, true = calibrator.predict_float64(new), scipy.special.expit(new)
        excess = (scipy.special.rel_entr(true, p) + scipy.special.rel_entr(1 - true, 1 - p)).mean()
        errors.append(estimate.value - estimate.references["identity"] - excess)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(20)


def test_a_fit_of_labels_that_harms_says_so() -> None:
    """Isotonic curves of 60 rows add .02 nats to calibrated labels; lines of 2,000 rows do not."""
    with pytest.warns(RecalibWarning, match="NLL of labels on new rows is about .* without a map"):
        recalib.fit(*_calibrated_labels(60, 20, 1), "isotonic", task="multilabel")
    assert (
        recalib.fit(*_calibrated_labels(2000, 5, 1), "platt", task="multilabel").card.fit.warnings
        == ()
    )
