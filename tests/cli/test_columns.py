"""`--scores`: tables whose columns of scores have the names of the classes."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import recalib
from recalib.client.calibrators import _row_digests
from tests.cli.running import LABELS, LOGITS, Cli

NAMES = ("cat", "dog", "emu", "fox")
WRITERS = {
    "csv": pyarrow.csv.write_csv,
    "parquet": pyarrow.parquet.write_table,
    "arrow": lambda table, path: pyarrow.feather.write_feather(table, path, "uncompressed"),
}


def write_table(cli: Cli, name: str, labels: list[object], **columns: object) -> None:
    scores = {"id": np.arange(len(LOGITS)), **dict(zip(NAMES, LOGITS.T, strict=True))}
    table = pa.table({**scores, "label": labels, **columns})
    WRITERS[name.rpartition(".")[2]](table, str(cli.folder / name))


@pytest.mark.parametrize("format", WRITERS)
@pytest.mark.parametrize("labels", [LABELS.tolist(), np.array(NAMES)[LABELS].tolist()])
def test_named_columns_are_scores_and_names_of_the_classes(
    cli: Cli, format: str, labels: list[object]
) -> None:
    """With labels that are numbers or names; later commands know the names from the card."""
    write_table(cli, f"x.{format}", labels)
    cli.fitted()
    expected = recalib.load(cli.folder / "t.calib")
    fit = ("fit", f"x.{format}", "--scores", "cat,dog,emu,fox", "-o", "n.calib", "--no-measure")
    assert cli(*fit).status == 0
    named = recalib.load(cli.folder / "n.calib")
    assert named.card.labels == NAMES
    np.testing.assert_allclose(
        named.parameters["temperature"], expected.parameters["temperature"], rtol=1e-9
    )
    assert cli("apply", "n.calib", f"x.{format}", "-o", "out.npz").status == 0
    answer = np.load(cli.folder / "out.npz")["probabilities"]
    np.testing.assert_allclose(answer, expected.predict(LOGITS), rtol=1e-6)
    measured = cli("evaluate", f"x.{format}", "--calibrator", "n.calib", "--json").json
    assert measured["nll"] == pytest.approx(
        expected.evaluate(LOGITS, LABELS, metrics=["nll"])["nll"], rel=1e-6
    )


def test_one_name_is_the_column_of_class_1(cli: Cli) -> None:
    scores, labels = LOGITS[:, 0] - LOGITS[:, 1], (LABELS == 0).astype(int)
    pyarrow.csv.write_csv(pa.table({"score": scores, "label": labels}), cli.folder / "x.csv")
    columns = ("--scores", "score")
    assert cli("fit", "x.csv", *columns, "-o", "s.calib", "--map", "vector").status == 0
    fitted = recalib.load(cli.folder / "s.calib")
    assert fitted.card.labels is None
    expected = recalib.fit(scores, labels, "vector")
    np.testing.assert_allclose(fitted.predict(scores), expected.predict(scores), rtol=1e-6)
    measured = cli("evaluate", "x.csv", *columns, "--calibrator", "s.calib", "--json").json
    assert measured["roc_auc"] == pytest.approx(expected.evaluate(scores, labels)["roc_auc"])
    report = ("report", "x.csv", "x.csv", *columns, "--maps", "vector", "-o", "r.html")
    assert cli(*report).status == 0


def test_order_of_columns_is_that_of_the_classes(cli: Cli) -> None:
    write_table(cli, "x.csv", np.array(NAMES)[LABELS].tolist())
    assert cli("fit", "x.csv", "--scores", "fox,cat,dog,emu", "-o", "n.calib").status == 0
    named = recalib.load(cli.folder / "n.calib")
    assert named.card.labels == ("fox", "cat", "dog", "emu")
    expected = recalib.fit(LOGITS, LABELS).parameters["temperature"]
    np.testing.assert_allclose(named.parameters["temperature"], expected, rtol=1e-9)


def test_error_says_what_to_write(cli: Cli) -> None:
    """Nothing is guessed: a column may be a row's number, a weight or a score."""
    write_table(cli, "x.csv", LABELS.tolist())
    result = cli("fit", "x.csv", "-o", "n.calib")
    assert result.status == 2
    assert "logits: found 'id', 'cat', 'dog', 'emu', 'fox', 'label'; accepted: " in result.err
    assert "or --scores NAME,... with the array, or with the columns in the order" in result.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit x.csv --scores cat,cow -o n.calib", "scores: found 'cow'; accepted: columns of"),
        ("fit x.csv --scores cat,label -o n.calib", "scores: found 'label'; accepted: columns"),
        ("fit x.csv --scores cat,cat -o n.calib", "scores: found 'cat' twice"),
        ("fit val.npz --scores cat,dog -o n.calib", "scores: found cat, dog; accepted: the name"),
        ("fit val.npz --scores cat -o n.calib", "scores: found 'cat'; accepted: one of 'logits',"),
        ("fit x.csv --label y -o n.calib", "label: found 'y'; accepted: one of 'id', 'cat', 'dog'"),
        ("fit x.csv --weights w -o n.calib", "weights: found 'w'; accepted: one of 'id', 'cat'"),
        ("fit y.csv --scores cat,dog,emu,fox -o n.calib", "labels[2]: found 'cow'; accepted: "),
        ("fit z.csv --scores cat,dog,emu,fox -o n.calib", "labels[2]: found null (nothing)"),
    ],
)
def test_columns_that_do_not_fit_are_rejected(cli: Cli, command: str, message: str) -> None:
    names = np.array(NAMES)[LABELS].tolist()
    write_table(cli, "x.csv", names)
    write_table(cli, "y.csv", [*names[:2], "cow", *names[3:]])
    write_table(cli, "z.csv", [*names[:2], None, *names[3:]])
    result = cli(*command.split())
    assert result.status == 2
    assert message in result.err


def test_named_columns_of_several_files_name_the_classes(cli: Cli) -> None:
    write_table(cli, "x.csv", np.array(NAMES)[LABELS].tolist())
    write_table(cli, "y.parquet", np.array(NAMES)[LABELS].tolist())
    scores = ("--scores", "cat,dog,emu,fox")
    assert cli("fit", "x.csv", "y.parquet", *scores, "-o", "n.calib", "--no-measure").status == 0
    assert recalib.load(cli.folder / "n.calib").card.labels == NAMES


def test_compare_and_report_take_named_columns(cli: Cli) -> None:
    write_table(cli, "x.csv", np.array(NAMES)[LABELS].tolist())
    write_table(cli, "y.parquet", LABELS.tolist())
    options = ("--scores", "cat,dog,emu,fox", "--maps", "temperature", "--json")
    (entry,) = cli("compare", "x.csv", "y.parquet", *options).json
    assert entry["map"] == "temperature"
    report = cli("report", "x.csv", "y.parquet", *options, "-o", "r.html").json
    assert report["recommended"]["map"] == "temperature"
    assert "emu" in (cli.folder / "r.html").read_text()


def test_messages_name_options_in_place_of_arguments(cli: Cli) -> None:
    """Warnings and errors of the library say `input="probabilities"`."""
    probabilities = recalib.fit(LOGITS, LABELS).predict(LOGITS)
    columns = {f"prob_{k}": column for k, column in enumerate(probabilities.T)}
    pyarrow.csv.write_csv(pa.table({**columns, "label": LABELS}), str(cli.folder / "p.csv"))
    error = cli("fit", "p.csv", "-o", "n.calib").err
    assert "(if probabilities are meant, write --input probabilities)" in error
    np.savez(cli.folder / "p.npz", logits=probabilities, labels=LABELS)
    warning = cli("fit", "p.npz", "-o", "n.calib", "--no-measure").err
    assert "write --input probabilities, otherwise --input logits" in warning


@pytest.mark.parametrize("format", WRITERS)
def test_columns_of_the_classes_come_before_numbered_columns(cli: Cli, format: str) -> None:
    """A table of scores may have numbered features beside them, also where digests are sent."""
    features = {f"feature_{k}": column for k, column in enumerate(LOGITS.T[:, ::-1])}
    write_table(cli, f"x.{format}", np.array(NAMES)[LABELS].tolist(), **features)
    cli("fit", f"x.{format}", "--scores", ",".join(NAMES), "-o", "n.calib", "--no-measure")
    fitted = recalib.load(cli.folder / "n.calib")
    assert cli("apply", "n.calib", f"x.{format}", "-o", "out.npz").status == 0
    answer = np.load(cli.folder / "out.npz")["probabilities"]
    np.testing.assert_allclose(answer, fitted.predict(LOGITS), rtol=1e-6)
    measured = cli("evaluate", f"x.{format}", "--calibrator", "n.calib", "--json").json
    expected = fitted.evaluate(LOGITS, LABELS, metrics=["nll"])["nll"]
    assert measured["nll"] == pytest.approx(expected, rel=1e-6)
    assert _row_digests(fitted, cli.folder / f"x.{format}") == _row_digests(fitted, LOGITS)


def test_column_of_lists_comes_before_columns_of_the_classes(cli: Cli) -> None:
    """Results of `map_batches` have both; the lists have the name that files have."""
    write_table(cli, "x.parquet", LABELS.tolist())
    write_table(cli, "y.parquet", LABELS.tolist(), logits=(2 * LOGITS).tolist())
    cli("fit", "x.parquet", "--scores", ",".join(NAMES), "-o", "n.calib", "--no-measure")
    assert cli("apply", "n.calib", "y.parquet", "-o", "out.npz").status == 0
    answer = np.load(cli.folder / "out.npz")["probabilities"]
    expected = recalib.load(cli.folder / "n.calib").predict(2 * LOGITS)
    np.testing.assert_allclose(answer, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "command", ["apply n.calib x.csv -o o.npz", "evaluate x.csv --calibrator n.calib"]
)
def test_other_order_than_that_of_the_card_is_rejected(cli: Cli, command: str) -> None:
    write_table(cli, "x.csv", LABELS.tolist())
    cli("fit", "x.csv", "--scores", ",".join(NAMES), "-o", "n.calib", "--no-measure")
    result = cli(*command.split(), "--scores", "dog,cat,emu,fox")
    assert result.status == 2
    message = "scores: found columns in the order dog, cat, emu, fox; accepted: the order cat, dog"
    assert message in result.err


def test_empty_list_of_columns_is_rejected(cli: Cli) -> None:
    write_table(cli, "x.csv", LABELS.tolist())
    for columns in ("", " , "):
        result = cli("fit", "x.csv", "--scores", columns, "-o", "n.calib")
        assert result.status == 2
        assert f"scores: found {columns!r}; accepted: names, separated by commas" in result.err


@pytest.mark.parametrize("format", WRITERS)
def test_names_that_are_numbers_of_other_classes_are_rejected(cli: Cli, format: str) -> None:
    """A label 2 would be the first class by its name and the third by its number."""
    scores = dict(zip("0123", LOGITS.T, strict=True))
    WRITERS[format](pa.table({**scores, "label": LABELS}), str(cli.folder / f"x.{format}"))
    result = cli("fit", f"x.{format}", "--scores", "2,1,0,3", "-o", "n.calib")
    assert result.status == 2
    assert "scores: found '2' as the name of class 0; accepted: other names, or " in result.err
    cli("fit", f"x.{format}", "--scores", "0,1,2,3", "-o", "n.calib", "--no-measure")
    expected = recalib.fit(LOGITS, LABELS).parameters["temperature"]
    answer = recalib.load(cli.folder / "n.calib").parameters["temperature"]
    np.testing.assert_allclose(answer, expected, rtol=1e-9)


def test_labels_in_a_csv_file_may_be_whole_floats(cli: Cli) -> None:
    """pandas writes numbers of classes with a point if a column once had a missing value."""
    write_table(cli, "x.csv", [f"{label}.0" for label in LABELS])
    write_table(cli, "y.csv", ["1.5", *map(str, LABELS[1:])])
    fit = ("--scores", ",".join(NAMES), "-o", "n.calib", "--no-measure")
    assert cli("fit", "x.csv", *fit).status == 0
    result = cli("fit", "y.csv", *fit)
    assert result.status == 2
    accepted = "the name of a class (cat, dog, emu, fox) or its number (0 to 3)"
    assert f"labels[0]: found '1.5'; accepted: {accepted}" in result.err


def test_error_shows_that_names_are_cut(cli: Cli) -> None:
    columns = {f"c{k}x": [0.0, 1.0] for k in range(10)}
    WRITERS["csv"](pa.table({**columns, "label": ["c0x", "cow"]}), str(cli.folder / "x.csv"))
    result = cli("fit", "x.csv", "--scores", ",".join(columns), "-o", "n.calib")
    assert "(c0x, c1x, c2x, c3x, c4x, c5x, c6x, c7x, ...) or its number (0 to 9)" in result.err


@pytest.mark.parametrize("format", WRITERS)
def test_labels_of_one_score_have_the_names_of_the_option(cli: Cli, format: str) -> None:
    """`yes` is class 1, the last; the card and later commands know the names."""
    scores, labels = LOGITS[:, 0] - LOGITS[:, 1], (LABELS == 0).astype(int)
    table = {"score": scores, "label": np.array(["no", "yes"])[labels]}
    WRITERS[format](pa.table(table), str(cli.folder / f"x.{format}"))
    options = ("--scores", "score", "--map", "vector", "-o", "s.calib")
    refused = cli("fit", f"x.{format}", *options)
    assert refused.status == 2
    assert "--class-names (in Python class_names=) with all, in order: no,yes" in " ".join(
        refused.err.split()
    )
    assert cli("fit", f"x.{format}", "--class-names", "no,yes", *options).status == 0
    fitted = recalib.load(cli.folder / "s.calib")
    assert fitted.card.labels == ("no", "yes")
    expected = recalib.fit(scores, labels, "vector")
    np.testing.assert_array_equal(fitted.parameters["bias"], expected.parameters["bias"])
    arguments = ("evaluate", f"x.{format}", "--scores", "score", "--json")
    named = cli(*arguments, "--class-names", "no,yes").json
    assert named["roc_auc"] > 0.5
    after = cli(*arguments, "--calibrator", "s.calib").json
    assert after["roc_auc"] == pytest.approx(named["roc_auc"])
    for names, message in (("yes,no", "the order no, yes"), (",", "names, separated by commas")):
        result = cli(*arguments, "--calibrator", "s.calib", "--class-names", names)
        assert result.status == 2
        assert message in " ".join(result.err.split())
    result = cli(*arguments, "--class-names", "a,b,c")
    assert "class_names: found 3 names; accepted: 2, one a class" in " ".join(result.err.split())
    for names, found in {"no,no": "'no' twice", "1,0": "'1' as the name of class 0"}.items():
        result = cli(*arguments, "--class-names", names)
        assert f"class_names: found {found}; accepted: " in " ".join(result.err.split())


def test_masks_by_null_are_counted(cli: Cli) -> None:
    """pandas writes NaN as null, so a missing number would be a mask in silence."""
    rows = [[1.0, None, 0.0], [0.5, 0.0, 2.0], [None, 0.0, 1.0]]
    cli.write("x.json", json.dumps({"logits": rows, "labels": [0, 1, 2]}).encode())
    result = cli("evaluate", "x.json", "--json")
    assert result.status == 0
    shown = "warning: x.json: null masks a class, with P = 0, in 2 of 3 rows\n"
    assert result.err == shown


@pytest.mark.parametrize("format", WRITERS)
@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_other_columns_are_carried_to_the_answers(cli: Cli, format: str, output: str) -> None:
    """Ids and notes come first, in every type; text of a text file stays as it is."""
    cli.fitted()
    ids = [f"{k:03}" for k in range(len(LOGITS))]
    notes = [None if k % 2 else "a,b" for k in range(len(LOGITS))]
    scores = {f"logit_{k}": column for k, column in enumerate(LOGITS.T)}
    table = pa.table({"id": ids, **scores, "labels": LABELS, "note": notes, "accepted": LABELS})
    WRITERS[format](table, str(cli.folder / f"x.{format}"))
    assert cli("apply", "t.calib", f"x.{format}", "-o", output).status == 0
    assert cli("apply", "t.calib", f"x.{format}", "-o", "out.npz").status == 0
    probabilities = cli.probabilities("out.npz")
    if output == "out.parquet":
        answer = pyarrow.parquet.read_table(cli.folder / output)
        assert answer.column_names == ["id", "note", "accepted", "probabilities"]
        np.testing.assert_array_equal(answer["probabilities"].to_pylist(), probabilities)
    else:
        names = ["id", "note", "accepted", *(f"probability_{k}" for k in range(4))]
        kinds = {"id": pa.string(), "note": pa.string()}
        options = pyarrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=True)
        answer = pyarrow.csv.read_csv(cli.folder / output, convert_options=options)
        assert answer.column_names == names
        np.testing.assert_allclose(answer["probability_3"].to_numpy(), probabilities[:, 3])
    assert answer["id"].to_pylist() == ids
    assert answer["note"].to_pylist() == notes


def test_answers_replace_columns_of_their_names(cli: Cli) -> None:
    """A file that has been applied before can be applied again."""
    cli.fitted()
    scores = {f"logit_{k}": column for k, column in enumerate(LOGITS.T)}
    table = pa.table({"probability_0": LABELS, "id": LABELS, **scores})
    pyarrow.csv.write_csv(table, cli.folder / "x.csv")
    assert cli("apply", "t.calib", "x.csv", "-o", "out.csv").status == 0
    names = pyarrow.csv.read_csv(cli.folder / "out.csv").column_names
    assert names == ["id", *(f"probability_{k}" for k in range(4))]
    pyarrow.csv.write_csv(pa.table({**scores, "labels": LABELS}), cli.folder / "y.csv")
    assert cli("apply", "t.calib", "y.csv", "-o", "out.csv").status == 0
    assert pyarrow.csv.read_csv(cli.folder / "out.csv").column_names == names[1:]
