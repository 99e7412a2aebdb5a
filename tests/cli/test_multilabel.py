"""Independent labels on the command line."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet
import pytest

import recalib
from recalib.errors import InputError
from tests.cli.running import Cli
from tests.files.examples import write_npz
from tests.fitting.test_multilabel import draw_labels


@pytest.fixture
def labels_cli(cli: Cli) -> Cli:
    """`several.npz` and `several.parquet` with the same 400 rows of 4 labels."""
    z, y = draw_labels(400)
    np.savez(cli.folder / "several.npz", logits=z, labels=y)
    table = pa.table({"logits": list(z), "labels": list(y.astype(np.int8)), "other": range(400)})
    pyarrow.parquet.write_table(table, cli.folder / "several.parquet")
    return cli


@pytest.mark.parametrize("data", ["several.npz", "several.parquet"])
def test_fit_apply_evaluate_and_export(labels_cli: Cli, data: str) -> None:
    z, y = draw_labels(400)
    fit = ["fit", data, "--task", "multilabel", "--map", "platt", "-o", "a.calib"]
    output = labels_cli(*fit, "--json").json
    assert output["card"]["task"] == "multilabel"
    expected = recalib.fit(z, y, "platt", task="multilabel").predict(z)
    assert labels_cli("apply", "a.calib", data, "-o", "p.npz").status == 0
    with np.load(labels_cli.folder / "p.npz") as answer:
        np.testing.assert_allclose(answer["probabilities"], expected)
    evaluate = ["evaluate", data, "--task", "multilabel", "--calibrator", "a.calib"]
    metrics = labels_cli(*evaluate, "--json").json
    measured = recalib.evaluate(y, expected, task="multilabel")
    assert metrics["average"] == pytest.approx(dict(measured))
    assert metrics["labels"]["3"] == pytest.approx(dict(measured.labels["3"]))
    assert "means over 4 labels" in labels_cli(*evaluate).out
    before = labels_cli("evaluate", data, "--task", "multilabel", "--json", "--intervals").json
    label = before["labels"]["2"]["nll"]
    assert label["low"] < label["value"] < label["high"]
    assert labels_cli("export", "a.calib", "-o", "a.onnx").status == 0
    assert onnx.load(labels_cli.folder / "a.onnx").graph.output[0].name == "probabilities"
    text = labels_cli(*fit).out
    assert "platt by nll on 400 rows, 4 labels, means over labels (in sample)" in text


@pytest.mark.slow
@pytest.mark.parametrize("picture", [(), ("--picture", "classwise")])
def test_diagram_shows_the_labels_with_the_largest_error(
    labels_cli: Cli, picture: tuple[str, ...]
) -> None:
    """It is that of Python, of the data or of calibrated probabilities."""
    z, y = draw_labels(400)
    labels_cli("fit", "several.npz", "--task", "multilabel", "--map", "platt", "-o", "a.calib")
    evaluate = ["evaluate", "several.npz", "--task", "multilabel", "--bins", "10", *picture]
    for calibrator, values in (
        ([], {"logits": z}),
        (
            ["--calibrator", "a.calib"],
            {"probabilities": recalib.load(labels_cli.folder / "a.calib").predict(z)},
        ),
    ):
        result = labels_cli(*evaluate, *calibrator, "--diagram", "d.json")
        assert result.out.endswith("saved d.json\n")
        text = (labels_cli.folder / "d.json").read_text()
        drawn = recalib.classwise_diagram(y, **values, task="multilabel", bins=10)
        assert json.loads(text) == drawn.specification
        assert "Labels: the 4 of 4 with the largest error" in text
    assert labels_cli(*evaluate, "--diagram", "d.png", "--json").json["labels"]
    assert (labels_cli.folder / "d.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_report_recommends_a_map_and_measures_it(labels_cli: Cli) -> None:
    """On the test rows, by label and as means over labels, beside the rows as they are."""
    z, y = draw_labels(900)
    np.savez(labels_cli.folder / "val.npz", logits=z[:500], labels=y[:500])
    np.savez(labels_cli.folder / "test.npz", logits=z[500:], labels=y[500:])
    report = ["report", "val.npz", "test.npz", "--task", "multilabel", "-o", "page.html"]
    result = labels_cli(*report, "--json").json
    map = result["recommended"]["map"]
    assert map != "identity"
    losses = {score["map"]: score["nll"] for score in result["maps"]}
    assert list(losses) == ["identity", "temperature", "platt", "beta", "isotonic"]
    (chosen,) = [score for score in result["maps"] if score["map"] == map]
    assert chosen["nll"] - min(losses.values()) == pytest.approx(chosen["difference"])
    assert 0 <= chosen["difference"] <= chosen["error"]
    fitted = recalib.fit(z[:500], y[:500], map, task="multilabel")
    for stage, scores in (
        ("before", {"logits": z[500:]}),
        ("after", {"probabilities": fitted.predict(z[500:])}),
    ):
        expected = recalib.evaluate(y[500:], **scores, task="multilabel")
        values = {name: metric["value"] for name, metric in result["metrics"][stage].items()}
        assert values == pytest.approx(dict(expected))
    assert result["changes"]["nll"]["verdict"] == "better"
    assert result["warnings"] == []
    page = (labels_cli.folder / "page.html").read_text()
    assert f"Recommended: {result['recommended']['reason']}." in page
    assert "These are means over 4 labels." in page
    assert f"Labels with the largest error, {map}" in page
    for role in ("validation", "test"):
        assert f"<td>{role}</td>" in page

    np.savez(labels_cli.folder / "more.npz", logits=z, labels=y)
    report[2] = "more.npz"
    result = labels_cli(*report, "--maps", "temperature").out
    assert "recommended: temperature" in result
    assert "Calibration helps: NLL falls" in result
    warnings = labels_cli(*report, "--json").json["warnings"]
    assert warnings == [
        "500 of 900 test rows are in the validation file too: their metrics are optimistic"
    ]


def test_report_on_calibrated_labels_recommends_no_change(labels_cli: Cli) -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(0, 2, (800, 3))
    y = rng.random((800, 3)) < 1 / (1 + np.exp(-z))
    np.savez(labels_cli.folder / "a.npz", logits=z[:400], labels=y[:400])
    np.savez(labels_cli.folder / "b.npz", logits=z[400:], labels=y[400:])
    report = ["report", "a.npz", "b.npz", "--task", "multilabel", "-o", "page.html"]
    result = labels_cli(*report, "--json").json
    assert result["recommended"]["map"] == "identity"
    assert result["changes"] == {}
    assert result["metrics"]["before"] == result["metrics"]["after"]


@pytest.mark.parametrize("separable", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_report_on_rows_that_determine_no_map_recommends_no_change(
    labels_cli: Cli, separable: bool
) -> None:
    """All held-out labels are predicted correctly, or all rows have the same labels."""
    z = np.random.default_rng(3).normal(0, 2, (400, 3))
    y = z > (0 if separable else np.inf)
    np.savez(labels_cli.folder / "a.npz", logits=z[:300], labels=y[:300])
    np.savez(labels_cli.folder / "b.npz", logits=z[300:], labels=y[300:])
    report = ["report", "a.npz", "b.npz", "--task", "multilabel", "-o", "page.html"]
    recommended = labels_cli(*report, "--json").json["recommended"]
    assert recommended["map"] == "identity"
    assert "identity: these rows determine no map: " in recommended["reason"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--objectives", "brier"], "objectives: found brier; accepted: nll for task multilabel"),
        (["--shift", "x=several.npz"], "shift: found x; accepted: none for task multilabel"),
        (["--any-accuracy"], "any-accuracy: found --any-accuracy"),
        (["--maps", "plat"], "did you mean platt"),
        (["--add-test", "several.npz"], "accepted: multiclass for other sources than two files"),
    ],
)
def test_options_that_the_report_on_labels_lacks_are_refused(
    labels_cli: Cli, options: list[str], text: str
) -> None:
    report = ["report", "several.npz", "several.npz", "--task", "multilabel", "-o", "page.html"]
    result = labels_cli(*report, *options)
    assert result.status == 2
    assert text in result.err
    assert not (labels_cli.folder / "page.html").exists()


def test_other_pictures_of_labels_are_refused(labels_cli: Cli) -> None:
    evaluate = ["evaluate", "several.npz", "--task", "multilabel", "--diagram", "d.json"]
    for picture in ("reliability", "smooth", "confidence", "risk"):
        result = labels_cli(*evaluate, "--picture", picture)
        assert (result.status, result.err) == (
            2, f"error: picture: found {picture}; accepted: classwise for task multilabel\n"
        )  # fmt: skip
    result = labels_cli(*evaluate, "--bins", "101")
    assert (result.status, "bins: found 101" in result.err) == (2, True)
    names = ("a", "b", "c", "d")
    z, y = draw_labels(50)
    drawn = recalib.classwise_diagram(y, logits=z, class_labels=names, worst=2, task="multilabel")
    assert "Labels: the 2 of 4" in json.dumps(drawn.specification)
    with pytest.raises(InputError, match="class_labels: found a, b, c"):
        recalib.classwise_diagram(y, logits=z, class_labels=names[:3], task="multilabel")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fit", "several.npz", "--task", "multilabel", "--map", "auto"], "map: found 'auto'"),
        (["fit", "val.npz", "--task", "multilabel"], "labels: found shape (300,)"),
        (["fit", "several.csv", "--task", "multilabel"], "a column of type double"),
        (["fit", "none.npz", "--task", "multilabel"], "No such file"),
        (["fit", "alone.npz", "--task", "multilabel"], "labels: found a npz file without labels"),
        (["fit", "broken.npz", "--task", "multilabel"], "a file that cannot be read as npz"),
        (["fit", "ragged.parquet", "--task", "multilabel"], "logits[1]: found 3 classes"),
        (["fit", "several.npz"], "labels"),
    ],
)
def test_bad_data_ends_with_one_line(labels_cli: Cli, arguments: list[str], text: str) -> None:
    folder = labels_cli.folder
    np.savez(folder / "alone.npz", logits=draw_labels(20)[0])
    (folder / "broken.npz").write_bytes((folder / "several.npz").read_bytes()[:500])
    (folder / "several.csv").write_text("logit_0,logit_1,labels\n1,2,0\n")
    ragged = pa.table({"logits": [[1.0, 2.0], [1.0, 2.0, 3.0]], "labels": [[0, 1], [0, 1]]})
    pyarrow.parquet.write_table(ragged, folder / "ragged.parquet")
    result = labels_cli(*arguments, "-o", "b.calib")
    assert result.status == 2
    assert text in result.err
    assert result.err.count("\n") == 1
    assert not (folder / "b.calib").exists()


def test_commands_for_one_class_refuse_a_multilabel_calibrator(labels_cli: Cli) -> None:
    labels_cli("fit", "several.npz", "--task", "multilabel", "-o", "a.calib")
    labels_cli.write("plain.npz", write_npz(*_plain()))
    for arguments in (
        ["evaluate", "plain.npz", "--calibrator", "a.calib"],
        ["fuse", "m.onnx", "a.calib", "-o", "f.onnx"],
        ["replay", "log.parquet", "--calibrator", "a.calib"],
    ):
        (labels_cli.folder / "log.parquet").write_bytes(b"")
        onnx.save(_classifier(), labels_cli.folder / "m.onnx")
        result = labels_cli(*arguments)
        assert result.status == 2
        assert "multilabel" in result.err


def _plain() -> tuple[np.ndarray, np.ndarray]:
    z, y = draw_labels(20)
    return z, y.argmax(axis=1)


def _classifier() -> onnx.ModelProto:
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4])
        for name in ("x", "logits")
    ]
    node = onnx.helper.make_node("Identity", ["x"], ["logits"])
    graph = onnx.helper.make_graph([node], "m", values[:1], values[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
