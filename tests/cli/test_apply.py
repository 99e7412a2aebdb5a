"""`recalib apply`, and the path from fit to evaluate for each file format."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import recalib
from recalib import metrics
from recalib.metrics.evaluate import evaluate
from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import WRITERS, Writer, write_npy, write_npz
from tests.metrics.rows import defined

#: Without a confidence above 0.99 there is no `s99_accuracy`.
METRICS = [
    name
    for name in defined(LOGITS.shape[1])
    if name != "s99_accuracy" and not metrics.METRICS[name].on_request
]
with_labels = {name: pair for name, pair in WRITERS.items() if pair[0] != "npy"}


@pytest.mark.parametrize(("format", "write"), with_labels.values(), ids=list(with_labels))
def test_fit_and_apply_read_every_format(cli: Cli, format: str, write: Writer) -> None:
    """From a file of any format, each step gives what the library computes from the arrays."""
    data = f"rows.{format}"
    cli.write(data, write(LOGITS, LABELS))
    expected = recalib.fit(LOGITS, LABELS)

    fit = cli("fit", data, "-o", "t.calib", "--json").json
    # The same float64 numbers; only the Fortran order of some formats rounds sums differently.
    assert fit["parameters"]["temperature"] == pytest.approx(expected.parameters["temperature"])
    assert (fit["card"]["map"], fit["card"]["objective"]) == ("temperature", "nll")
    assert (fit["card"]["data"]["rows"], fit["card"]["data"]["name"]) == (300, data)

    apply = cli("apply", "t.calib", data, "-o", "out.npz", "--json").json
    assert apply == {"output": "out.npz", "rows": 300, "classes": 4}
    np.testing.assert_allclose(cli.probabilities("out.npz"), expected.predict(LOGITS), atol=1e-9)
    assert set(cli.files()) == {"val.npz", data, "t.calib", "out.npz"}


def test_export_and_evaluate_give_the_probabilities_of_apply(cli: Cli) -> None:
    assert cli("apply", cli.fitted(), "val.npz", "-o", "out.npz").status == 0
    probabilities = cli.probabilities("out.npz")
    export = cli("export", "t.calib", "-o", "t.onnx", "--json").json
    assert export == {"output": "t.onnx", "bytes": len((cli.folder / "t.onnx").read_bytes())}
    session = onnxruntime.InferenceSession(cli.folder / "t.onnx")
    (answer,) = session.run(["probabilities"], {"logits": LOGITS.astype(np.float32)})
    np.testing.assert_allclose(answer, probabilities, atol=1e-6)  # float32 of values up to 1

    measured = cli("evaluate", "val.npz", "--calibrator", "t.calib", "--json").json
    assert list(measured) == METRICS
    for name, value in evaluate(LABELS, probabilities=probabilities).items():
        assert measured[name] == pytest.approx(value.value, rel=1e-9), name
    assert set(cli.files()) == {"val.npz", "t.calib", "out.npz", "t.onnx"}


def test_text_output_of_commands_on_one_file(cli: Cli) -> None:
    """Tables and saved files are on standard output; standard error is empty."""
    says = {
        "fit val.npz -o t.calib": ["temperature: ", "on 300 rows, 4 classes", "saved t.calib\n"],
        "apply t.calib val.npz -o out.npz": ["saved 300 rows of 4 probabilities to out.npz\n"],
        "export t.calib -o t.onnx": [" bytes to t.onnx\n"],
        "evaluate val.npz --all --calibrator t.calib": ["val.npz: 300 rows", *METRICS, "%", " ["],
        "compare val.npz val.npz --maps identity,temperature --objectives nll": [
            "fitted on val.npz, measured on val.npz",
            "identity",
            "temperature",
        ],
    }
    for command, parts in says.items():
        result = cli(*command.split())
        assert (result.status, result.err) == (0, ""), command
        assert [part for part in parts if part not in result.out] == []


def test_file_names_are_printed_without_markup(cli: Cli) -> None:
    """Neither markup nor emoji: [red] and :smile: are parts of names."""
    calib = cli.fitted()
    result = cli("apply", calib, "val.npz", "-o", ":smile:[red]x[b].npz")
    assert result.out.endswith(" to :smile:[red]x[b].npz\n")
    cli.write("[red]val.npz", write_npz(LOGITS, LABELS))
    assert "[red]val.npz: 300 rows" in cli("evaluate", "[red]val.npz").out


@pytest.mark.parametrize("command", ["apply", "predict"])
def test_apply_needs_no_labels(cli: Cli, command: str) -> None:
    """`predict` is another name of `apply`."""
    cli.write("new.npy", write_npy(LOGITS[:7]))
    calib = cli.fitted()
    assert cli(command, calib, "new.npy", "-o", "out.npz", "--json").json["rows"] == 7


def test_existing_output_is_replaced(cli: Cli) -> None:
    calib = cli.fitted()
    cli.write("out.npz", b"old")
    assert cli("apply", calib, "val.npz", "-o", "out.npz").status == 0
    assert cli.probabilities("out.npz").shape == (300, 4)
    assert set(cli.files()) == {"val.npz", "t.calib", "out.npz"}


def test_sets_are_fitted_and_written_beside_probabilities(cli: Cli) -> None:
    fit = cli("fit", "val.npz", "--sets", "lac", "--coverage", "0.8", "-o", "t.calib")
    assert "prediction sets (lac) hold the label of 0.8 of new rows" in fit.out
    apply = cli("apply", "t.calib", "val.npz", "-o", "out.npz")
    assert apply.out == "saved 300 rows of 4 probabilities and sets to out.npz\n"
    expected = recalib.fit(LOGITS, LABELS, sets="lac", coverage=0.8).predict_set(LOGITS)
    np.testing.assert_array_equal(np.load(cli.folder / "out.npz")["sets"], expected)


def test_thresholds_of_clusters_and_folds(cli: Cli) -> None:
    fit = cli("fit", "val.npz", *("--sets", "raps", "--sets-by", "class", "--sets-folds", "4"),
              *("--sets-penalty", "0.2", "--sets-k-reg", "1"), "-o", "t.calib")  # fmt: skip
    assert (
        "hold the label of about 0.9 of new rows of each class: out-of-fold thresholds" in fit.out
    )
    sets = recalib.load(cli.folder / "t.calib").card.sets
    assert sets is not None
    assert (sets.by, sets.folds, sets.rows) == ("class", 4, len(LABELS))
    assert (sets.penalty, sets.k_reg) == (0.2, 1)
    refused = cli("fit", "val.npz", "--sets-by", "class", "-o", "t.calib")
    assert refused.status == 2
    assert "sets_by: found class; accepted: only together with sets" in refused.err
    refused = cli("fit", "val.npz", "--sets", "aps", "--sets-k-reg", "1", "-o", "t.calib")
    assert "sets_k_reg: found 1; accepted: only with sets of raps" in refused.err


def test_intervals_are_written_beside_probabilities(cli: Cli) -> None:
    assert cli("fit", "val.npz", "--map", "venn_abers", "-o", "t.calib").status == 0
    apply = cli("apply", "t.calib", "val.npz", "-o", "out.npz")
    assert apply.out == "saved 300 rows of 4 probabilities and intervals to out.npz\n"
    expected = recalib.fit(LOGITS, LABELS, "venn_abers").predict_interval(LOGITS)
    np.testing.assert_array_equal(np.load(cli.folder / "out.npz")["intervals"], expected)


def test_accepted_rows_are_written_beside_probabilities(cli: Cli) -> None:
    fit = cli("fit", "val.npz", "--max-risk", "0.7", "-o", "t.calib")
    assert fit.status == 0
    fitted = recalib.fit(LOGITS, LABELS, max_risk=0.7)
    rule = fitted.card.rejection
    assert rule is not None
    share = f"{rule.accepted / 150:.1%} of 150 rows that the map has not seen"
    assert f"confidence of at least {rule.threshold:g} are accepted, {share}: of new" in fit.out
    apply = cli("apply", "t.calib", "val.npz", "-o", "out.npz")
    assert apply.out == "saved 300 rows of 4 probabilities and accepted to out.npz\n"
    np.savez(cli.folder / "more.npz", logits=LOGITS)
    several = cli("apply", "t.calib", "val.npz", "more.npz", "-o", "out")
    assert several.out == "saved 600 rows of 4 probabilities and accepted to out (2 parts)\n"
    np.testing.assert_array_equal(
        np.load(cli.folder / "out.npz")["accepted"], fitted.is_accepted(LOGITS)
    )
