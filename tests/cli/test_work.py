"""fit, apply, export, evaluate and compare, for people and for machines."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest

import recalib
from recalib import metrics
from recalib.arrays import log_probabilities
from recalib.maps import MAPS
from recalib.metrics.evaluate import evaluate
from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import WRITERS, Writer, write_npy, write_npz

METRICS = [name for name, metric in metrics.METRICS.items() if not metric.on_request]
with_labels = {name: pair for name, pair in WRITERS.items() if pair[0] != "npy"}


@pytest.mark.parametrize(("format", "write"), with_labels.values(), ids=list(with_labels))
def test_fit_apply_export_evaluate(cli: Cli, format: str, write: Writer) -> None:
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
    probabilities = cli.probabilities("out.npz")
    np.testing.assert_allclose(probabilities, expected.predict(LOGITS), atol=1e-9)

    export = cli("export", "t.calib", "-o", "t.onnx", "--json").json
    assert export == {"output": "t.onnx", "bytes": len((cli.folder / "t.onnx").read_bytes())}
    session = onnxruntime.InferenceSession(cli.folder / "t.onnx")
    (answer,) = session.run(["probabilities"], {"logits": LOGITS.astype(np.float32)})
    np.testing.assert_allclose(answer, probabilities, atol=1e-6)  # float32 of values up to 1

    measured = cli("evaluate", data, "--calibrator", "t.calib", "--json").json
    assert list(measured) == METRICS
    for name, one in evaluate(LABELS, probabilities=probabilities).items():
        assert measured[name] == pytest.approx(one.value, rel=1e-9), name
    assert set(cli.files()) == {"val.npz", data, "t.calib", "out.npz", "t.onnx"}


def test_for_people(cli: Cli) -> None:
    """Tables and what was saved, on standard output; nothing beside it."""
    says = {
        "fit val.npz -o t.calib": ["temperature: ", "on 300 rows, 4 classes", "saved t.calib\n"],
        "apply t.calib val.npz -o out.npz": ["saved 300 rows of 4 probabilities to out.npz\n"],
        "export t.calib -o t.onnx": [" bytes to t.onnx\n"],
        "evaluate val.npz --calibrator t.calib": ["val.npz: 300 rows", *METRICS, "%", " ["],
        "compare val.npz val.npz --maps identity,temperature --objectives nll": [
            "fitted on val.npz, measured on val.npz",
            "identity",
            "temperature",
        ],
    }
    for command, parts in says.items():
        done = cli(*command.split())
        assert (done.status, done.err) == (0, ""), command
        assert [part for part in parts if part not in done.out] == []


def test_percentages_are_for_people(cli: Cli) -> None:
    share = cli("evaluate", "val.npz", "--json").json["accuracy"]
    assert 0 < share < 1
    assert f"{share * 100:.2f} [" in cli("evaluate", "val.npz").out


def test_names_are_shown_as_they_are(cli: Cli) -> None:
    """Neither markup nor emoji: [red] and :smile: are parts of names."""
    calib = cli.fitted()
    done = cli("apply", calib, "val.npz", "-o", ":smile:[red]x[b].npz")
    assert done.out.endswith(" to :smile:[red]x[b].npz\n")
    cli.write("[red]val.npz", write_npz(LOGITS, LABELS))
    assert "[red]val.npz: 300 rows" in cli("evaluate", "[red]val.npz").out


def test_warnings_stand_beside_the_output(cli: Cli) -> None:
    cli.write("few.npz", write_npz(LOGITS, LABELS % 2))
    done = cli("fit", "few.npz", "-o", "t.calib")
    assert done.status == 0
    assert done.err == "warning: 2 of 4 classes never occur in the labels: 2, 3\n"
    assert "warning" not in done.out
    card = cli("fit", "few.npz", "-o", "t.calib", "--json").json["card"]
    assert card["fit"]["warnings"] == ["2 of 4 classes never occur in the labels: 2, 3"]


def test_intervals(cli: Cli) -> None:
    measured = cli("evaluate", "val.npz", "--intervals", "--json").json
    accuracy = measured["accuracy"]
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert accuracy["floor"] is None
    error = measured["ece"]
    assert error.keys() == {"value", "low", "high", "floor"}
    assert 0 < error["floor"] < error["high"]
    assert "noise floor" in cli("evaluate", "val.npz").out


def test_bins(cli: Cli) -> None:
    assert cli("evaluate", "val.npz", "--bins", 1, "--json").json["ece"] == pytest.approx(
        evaluate(LABELS, logits=LOGITS, bins=1)["ece"].value
    )


def test_probabilities_where_one_says_so(cli: Cli) -> None:
    """They are taken as their logarithm; the fit is the same as of the logits they come from."""
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    cli.write("p.npz", write_npz(p, LABELS, "probabilities"))
    fit = cli("fit", "p.npz", "--input", "probabilities", "-o", "p.calib", "--json").json
    expected = recalib.fit(log_probabilities(p), LABELS).parameters["temperature"]
    assert fit["parameters"]["temperature"] == pytest.approx(expected)
    done = cli("apply", "p.calib", "p.npz", "--input", "probabilities", "-o", "out.npz")
    assert done.status == 0
    measured = cli("evaluate", "p.npz", "--input", "probabilities", "--json").json
    assert measured["nll"] == pytest.approx(evaluate(LABELS, logits=LOGITS)["nll"].value)


def test_apply_needs_no_labels(cli: Cli) -> None:
    cli.write("new.npy", write_npy(LOGITS[:7]))
    calib = cli.fitted()
    assert cli("apply", calib, "new.npy", "-o", "out.npz", "--json").json["rows"] == 7


def test_results_replace_older_ones(cli: Cli) -> None:
    calib = cli.fitted()
    cli.write("out.npz", b"old")
    assert cli("apply", calib, "val.npz", "-o", "out.npz").status == 0
    assert cli.probabilities("out.npz").shape == (300, 4)
    assert set(cli.files()) == {"val.npz", "t.calib", "out.npz"}


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("json", b"{")]
)
def test_diagram(cli: Cli, suffix: str, start: bytes) -> None:
    done = cli("evaluate", "val.npz", "--diagram", f"d.{suffix}")
    assert done.out.endswith(f"saved d.{suffix}\n")
    assert cli.files()[f"d.{suffix}"].startswith(start)


@pytest.mark.parametrize(
    ("picture", "text"),
    [
        ("reliability", "gap to mean confidence"),
        ("smooth", "accuracy, smoothed"),
        ("classwise", "class-wise ECE"),
        ("confidence", "wrong"),
        ("risk", "AURC"),
    ],
)
def test_each_picture_is_drawn(cli: Cli, picture: str, text: str) -> None:
    done = cli("evaluate", "val.npz", "--diagram", "d.json", "--picture", picture)
    assert done.status == 0
    assert text in cli.files()["d.json"].decode()


def test_compare(cli: Cli) -> None:
    """A row a pair, measured on the second file."""
    cli.write("test.npz", write_npz(LOGITS[:50], LABELS[:50]))
    command = ["compare", "val.npz", "test.npz", "--json", "--objectives", "nll"]
    rows = cli(*command, "--maps", "identity, temperature").json
    assert [(row["map"], row["objective"]) for row in rows] == [
        ("identity", "nll"),
        ("temperature", "nll"),
    ]
    assert all(list(row["metrics"]) == METRICS and row["fit_seconds"] >= 0 for row in rows)
    before = evaluate(LABELS[:50], logits=LOGITS[:50])
    assert rows[0]["metrics"]["nll"] == pytest.approx(before["nll"].value)
    assert rows[1]["metrics"]["nll"] < rows[0]["metrics"]["nll"]


def test_compare_leaves_out_what_does_not_go_together(cli: Cli) -> None:
    """All maps by default, and a warning about a pair that was asked for by name."""
    compare = ["compare", "val.npz", "val.npz", "--json"]
    by_grid = cli(*compare, "--objectives", "ece_grid").json
    assert {"temperature"} <= {row["map"] for row in by_grid} < set(MAPS)
    done = cli(*compare, "--objectives", "ece_grid", "--maps", "identity,temperature")
    assert [row["map"] for row in json.loads(done.out)] == ["temperature"]
    assert done.err.startswith("warning: left out: objective: found 'ece_grid'")
    alone = cli(*compare, "--objectives", "ece_grid", "--maps", "identity")
    assert (alone.status, alone.err[:37]) == (2, "error: objective: found 'ece_grid' fo")


def test_options(cli: Cli) -> None:
    """A value is JSON; one name may be the map's or the objective's."""
    fit = ["fit", "val.npz", "-o", "t.calib", "--objective", "focal", "--json"]
    card = cli(*fit, "--option", "gamma=1.5").json["card"]
    assert "1.5" in json.dumps(card)
    nll = cli(*fit, "--option", "gamma=0").json["parameters"]["temperature"]
    # The focal loss of gamma 0 is the likelihood; both solvers stop at a gradient of about 1e-6.
    assert nll == pytest.approx(recalib.fit(LOGITS, LABELS).parameters["temperature"], rel=1e-3)
