"""`recalib fit`: output, options, weights of input kinds, and automatic choice."""

from __future__ import annotations

import json

import numpy as np
import pytest

import recalib
from recalib.core.arrays import log_probabilities
from recalib.metrics.evaluate import evaluate
from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npz
from tests.fitting.conftest import draw_with_wrong_labels


def test_warnings_go_to_standard_error(cli: Cli) -> None:
    cli.write("few.npz", write_npz(LOGITS, LABELS % 2))
    result = cli("fit", "few.npz", "-o", "t.calib")
    assert result.status == 0
    assert result.err == "warning: 2 of 4 classes never occur in the labels: 2, 3\n"
    assert "warning" not in result.out
    card = cli("fit", "few.npz", "-o", "t.calib", "--json").json["card"]
    assert card["fit"]["warnings"] == ["2 of 4 classes never occur in the labels: 2, 3"]


@pytest.mark.slow
def test_error_above_the_tolerance_of_monitoring_is_a_warning(cli: Cli) -> None:
    rows = draw_with_wrong_labels(1_000, 20, 0.3)
    cli.write("misfit.npz", write_npz(*rows))
    text = cli("fit", "misfit.npz", "-o", "t.calib").err
    assert "this calibrator (temperature) on its own validation data is" in text
    (warning,) = cli("fit", "misfit.npz", "-o", "t.calib", "--json").json["warnings"]
    assert warning in text
    assert cli("fit", "misfit.npz", "-o", "t.calib", "--map", "auto").err == ""


@pytest.mark.slow
def test_compare_and_report_warn_of_the_tolerance(cli: Cli) -> None:
    """About the recommended calibrator: on standard error, and as a finding of the page."""
    cli.write("misfit.npz", write_npz(*draw_with_wrong_labels(1_000, 20, 0.3)))
    text = "he calibration error of the recommended calibrator (stack) on its own validation"
    only = ["--maps", "identity,temperature"]
    compared = cli("compare", "misfit.npz", "misfit.npz", *only, "--json")
    assert text in compared.err
    assert [row["map"] for row in json.loads(compared.out)] == ["identity", "temperature"]
    report = cli("report", "misfit.npz", "misfit.npz", "-o", "r.html", *only, "--json").json
    assert any(text in warning for warning in report["warnings"])


def test_input_probabilities(cli: Cli) -> None:
    """The fit uses their logarithms and equals the fit to the original logits."""
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    cli.write("p.npz", write_npz(p, LABELS, "probabilities"))
    fit = cli("fit", "p.npz", "--input", "probabilities", "-o", "p.calib", "--json").json
    expected = recalib.fit(log_probabilities(p), LABELS).parameters["temperature"]
    assert fit["parameters"]["temperature"] == pytest.approx(expected)
    for arguments in (["--input", "probabilities"], []):  # by default, what was fitted
        result = cli("apply", "p.calib", "p.npz", *arguments, "-o", "out.npz")
        assert (result.status, result.err) == (0, "")
        calibrated = cli("evaluate", "p.npz", "--calibrator", "p.calib", *arguments, "--json").json
        assert calibrated["nll"] == pytest.approx(fit["card"]["metrics"]["after"]["nll"]["value"])
    measured = cli("evaluate", "p.npz", "--input", "probabilities", "--json").json
    assert measured["nll"] == pytest.approx(evaluate(LABELS, logits=LOGITS)["nll"].value)


@pytest.mark.filterwarnings("always::recalib.errors.RecalibWarning")  # of `predict`
def test_probabilities_in_place_of_logits_are_refused(cli: Cli) -> None:
    """Predictions, which may be of one row, warn."""
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    cli.write("p.npz", write_npz(p, LABELS))
    refused = "logits: found rows that are no logits: every row is non-negative and sums to 1;"
    for command in ("fit p.npz -o p.calib", "evaluate p.npz"):
        result = cli(*command.split())
        assert result.status == 2
        assert refused in " ".join(result.err.split())
        assert "write --input probabilities, otherwise --input logits" in result.err
    assert not (cli.folder / "p.calib").exists()
    result = cli("apply", cli.fitted(), "p.npz", "-o", "out.npz")
    assert result.status == 0
    assert result.err.startswith("warning: values: every row is non-negative and sums to 1, but ")


def test_options(cli: Cli) -> None:
    """An option value is JSON; its name belongs to the map or the objective."""
    fit = ["fit", "val.npz", "-o", "t.calib", "--objective", "focal", "--json"]
    card = cli(*fit, "--option", "gamma=1.5").json["card"]
    assert "1.5" in json.dumps(card)
    nll = cli(*fit, "--option", "gamma=0").json["parameters"]["temperature"]
    # The focal loss of gamma 0 is the likelihood; both solvers stop at a gradient of about 1e-6.
    assert nll == pytest.approx(recalib.fit(LOGITS, LABELS).parameters["temperature"], rel=1e-3)


@pytest.mark.slow
def test_auto_reports_choice_and_reason(cli: Cli) -> None:
    fitted = cli("fit", "val.npz", "-o", "a.calib", "--map", "auto", "--json").json
    card, choice = fitted["card"], fitted["card"]["choice"]
    assert card["map"] == choice["map"]
    assert choice["reason"].startswith(f"{card['map']}: ")
    assert choice["folds"] == 5
    chosen = [candidate for candidate in choice["candidates"] if candidate["chosen"]]
    assert [value["map"] for value in chosen] == [card["map"]]
    assert chosen[0]["nll"]["low"] < chosen[0]["nll"]["value"] < chosen[0]["nll"]["high"]
    text = cli("fit", "val.npz", "-o", "b.calib", "--map", "auto").out
    assert choice["reason"] in text
    for candidate in choice["candidates"]:
        assert candidate["map"] in text
        assert candidate["nll"] is not None or candidate["verdict"][:40] in text
    assert "cross-validated on 300 rows in 5 folds" in text
    assert f"{card['map']} by nll on 300 rows" in text


@pytest.mark.slow
def test_auto_accepts_policy_options(cli: Cli) -> None:
    fit = ["fit", "val.npz", "-o", "a.calib", "--map", "auto", "--json"]
    choice = cli(*fit, "--predictions", "keep").json["card"]["choice"]
    assert choice["preserve_accuracy"] is True
    assert "structured_vector" in {candidate["map"] for candidate in choice["candidates"]}
    wrong = cli(*fit, "--option", "preserve_acuracy=false")
    assert wrong.status == 2
    assert wrong.err.startswith("error: options.preserve_acuracy: found an unknown option")


def test_device_has_the_same_parameters(cli: Cli) -> None:
    cli.write("val.npz", write_npz(LOGITS, LABELS))
    arguments = ["fit", "val.npz", "--map", "vector", "-o", "v.calib"]
    usual = cli(*arguments, "--json").json
    result = cli(*arguments, "--device", "cpu", "--no-measure", "--json").json
    for name, values in usual["parameters"].items():
        np.testing.assert_allclose(result["parameters"][name], values, rtol=0, atol=1e-5)
    assert result["card"]["metrics"] == {}
    assert "vector by nll on" in cli(*arguments, "--no-measure").out
    error = cli("fit", "absent.npz", "--map", "spline", "--device", "cpu", "-o", "v.calib").err
    assert error.startswith("error: device: found 'cpu' with the map spline")


@pytest.mark.filterwarnings("ignore::recalib.errors.RecalibWarning")  # labels as in training
def test_rebalanced_training_is_named_with_its_weights(cli: Cli) -> None:
    fit = cli("fit", "val.npz", "--resampled", "class_weight=1,2,1,4", "-o", "t.calib")
    assert fit.status == 0, fit.err
    expected = recalib.fit(LOGITS, LABELS, resampled={"class_weight": (1, 2, 1, 4)})
    np.testing.assert_array_equal(
        recalib.load(cli.folder / "t.calib").predict(LOGITS), expected.predict(LOGITS)
    )
    refused = cli("fit", "val.npz", "--resampled", "rate=0.1", "-o", "t.calib")
    assert refused.status == 2
    assert "resampled.rate: found 0.1; accepted: 4 positive numbers" in refused.err
