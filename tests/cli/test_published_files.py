"""Files of predictions as people publish them: one command each, with the values of the library."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.numpy

import recalib
from tests.cli.running import Cli

RANDOM = np.random.default_rng(11)
LOGITS = 3 * RANDOM.normal(size=(60, 3)).round(4)
LABELS = (LOGITS / 2 + RANDOM.gumbel(size=(60, 3))).argmax(axis=1)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
NAMES = np.array(["cat", "dog", "emu"])
#: Two classes: the log-odds and the probability of class 1.
ODDS, BINARY = LOGITS[:, 0], (LABELS == 0).astype(int)
P1 = 1 / (1 + np.exp(-ODDS))

THREE = {"logits": LOGITS, "labels": LABELS}
THREE_PROBABILITIES = {"probabilities": PROBABILITIES, "labels": LABELS}
TWO = {"logits": ODDS, "labels": BINARY}
TWO_PROBABILITIES = {"probabilities": P1, "labels": BINARY}


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({f"logit_{k}": LOGITS[:, k] for k in range(3)} | columns)


def csv(table: pd.DataFrame, **options: Any) -> Callable[[Path], object]:
    return lambda path: table.to_csv(path, index=False, **options)


def npz(**arrays: Any) -> Callable[[Path], object]:
    return lambda path: np.savez(path, **arrays)


def npy_pair(path: Path) -> None:
    np.save(path, LOGITS)
    np.save(path.with_name("y.npy"), LABELS)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pyarrow.parquet.write_table(pa.table(columns), path)


def lines(rows: list[Any]) -> Callable[[Path], object]:
    return text("".join(json.dumps(row) + "\n" for row in rows))


def samples(is_old: bool) -> list[Any]:
    """Return lines of lm-evaluation-harness of before or since version 0.4.3."""
    rows = []
    for scores, label in zip(LOGITS, LABELS, strict=True):
        requests = [["Question:", f" {name}"] for name in NAMES]
        answers = [[float(score), False] for score in scores]
        sample = {"doc_id": 0, "doc": {"q": "?"}, "acc": 1.0, "resps": [[a] for a in answers]}
        if is_old:
            sample |= {"target": int(label), "arguments": requests, "filtered_resps": answers}
        else:
            arguments = {
                f"gen_args_{k}": {"arg_0": request[0], "arg_1": request[1]}
                for k, request in enumerate(requests)
            }
            texts = [[str(score), str(is_greedy)] for score, is_greedy in answers]
            target = f" {NAMES[label]}"
            sample |= {"target": target, "arguments": arguments, "filtered_resps": texts}
        rows.append(sample)
    return rows


def decimals(values: Any) -> Any:
    return pa.array([Decimal(f"{value:.4f}") for value in values], pa.decimal128(18, 4))


PROBABILITY = ("--input", "probabilities")

#: By what it is: the name of the file, what writes it, options, and the arrays in it.
FORMS: dict[str, tuple[str, Callable[[Path], object], tuple[str, ...], dict[str, Any]]] = {
    "netcal's records": (
        "a.npz",
        npz(predictions=PROBABILITIES, ground_truth=LABELS, bins=15),
        (*PROBABILITY, "--scores", "predictions"),
        THREE_PROBABILITIES,
    ),
    "keras, labels (N, 1)": (
        "a.npz",
        npz(logits=LOGITS, labels=LABELS[:, None]),
        (),
        THREE,
    ),
    "y and y_prob": (
        "a.csv",
        csv(pd.DataFrame({"y": BINARY, "y_prob": P1})),
        (*PROBABILITY, "--scores", "y_prob", "--label", "y"),
        TWO_PROBABILITIES,
    ),
    "one probability in npz": (
        "a.npz",
        npz(probabilities=P1, labels=BINARY.astype(bool)),
        PROBABILITY,
        TWO_PROBABILITIES,
    ),
    "decision_function with labels -1 and 1": (
        "a.csv",
        csv(pd.DataFrame({"score": ODDS, "target": 2 * BINARY - 1})),
        ("--scores", "score", "--label", "target"),
        TWO,
    ),
    "truth values of pandas": (
        "a.csv",
        csv(pd.DataFrame({"logit": ODDS, "label": BINARY.astype(bool)})),
        (),
        TWO,
    ),
    "a spreadsheet with semicolons": ("a.csv", csv(frame(label=LABELS), sep=";"), (), THREE),
    "a spreadsheet with decimal commas": (
        "a.csv",
        csv(frame(label=LABELS), sep=";", decimal=","),
        (),
        THREE,
    ),
    "a spreadsheet with a byte-order mark": (
        "a.csv",
        csv(frame(label=LABELS), encoding="utf-8-sig", lineterminator="\r\n"),
        (),
        THREE,
    ),
    "tabs": ("a.tsv", csv(frame(label=LABELS), sep="\t"), (), THREE),
    "bars, and commas in a name": (
        "a.csv",
        csv(frame(label=LABELS).assign(**{"score, raw": 1.5}), sep="|"),
        ("--separator", "|"),
        THREE,
    ),
    "columns with the names of the classes": (
        "a.csv",
        csv(pd.DataFrame(LOGITS, columns=NAMES).assign(species=NAMES[LABELS], id=7)),
        ("--scores", "cat,dog,emu", "--label", "species"),
        THREE,
    ),
    "decimals of a warehouse": (
        "a.parquet",
        parquet(**{f"logit_{k}": decimals(LOGITS[:, k]) for k in range(3)}, label=LABELS),
        (),
        THREE,
    ),
    "labels as texts, scores as lists": (
        "a.parquet",
        parquet(model_output=LOGITS.tolist(), answer=[str(label) for label in LABELS]),
        ("--scores", "model_output", "--label", "answer"),
        THREE,
    ),
    "a pair of npy files": (
        "a.npy",
        npy_pair,
        ("--label", "y.npy"),
        THREE,
    ),
    "tensors of other names": (
        "a.safetensors",
        lambda path: safetensors.numpy.save_file(
            {"outputs": LOGITS, "targets": LABELS.astype(np.int32)}, path
        ),
        ("--scores", "outputs", "--label", "targets"),
        THREE,
    ),
    "a dictionary in json": (
        "a.json",
        text(json.dumps({"y_score": LOGITS.tolist(), "y": LABELS[:, None].tolist(), "note": "x"})),
        ("--scores", "y_score", "--label", "y"),
        THREE,
    ),
    "lists in json lines": (
        "a.jsonl",
        lines(
            [{"logits": z.tolist(), "label": int(y)} for z, y in zip(LOGITS, LABELS, strict=True)]
        ),
        (),
        THREE,
    ),
    "records of pandas": (
        "a.jsonl",
        lambda path: frame(label=LABELS).to_json(path, orient="records", lines=True),
        (),
        THREE,
    ),
    "samples of lm-evaluation-harness": ("samples_arc.jsonl", lines(samples(False)), (), THREE),
    "samples of an earlier harness": ("samples_arc.jsonl", lines(samples(True)), (), THREE),
    "a column of weights": (
        "a.csv",
        csv(frame(label=LABELS, weight=np.arange(60) + 1)),
        ("--weights", "weight"),
        THREE | {"sample_weight": np.arange(60) + 1},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_published_form_is_read_by_one_command(cli: Cli, form: str) -> None:
    name, write, options, arrays = FORMS[form]
    write(cli.folder / name)
    measured = cli("evaluate", name, *options, "--metrics", "nll", "--json").json
    expected = recalib.evaluate(**arrays, metrics=["nll"])
    assert measured == pytest.approx(dict(expected), rel=1e-9)


@pytest.mark.parametrize("form", ["y and y_prob", "a spreadsheet with decimal commas"])
def test_every_command_reads_the_same_forms(cli: Cli, form: str) -> None:
    """Labels are not read by `apply`; several files are read like one."""
    name, write, options, arrays = FORMS[form]
    write(cli.folder / name)
    kind = next(iter(arrays))
    expected = recalib.fit(arrays[kind], arrays["labels"], input=kind)
    assert cli("fit", name, *options, "-o", "t.calib", "--no-measure").status == 0
    fitted = recalib.load(cli.folder / "t.calib")
    assert fitted.parameters["temperature"] == pytest.approx(expected.parameters["temperature"])
    scores = [o for k, o in enumerate(options) if "--label" not in options[max(0, k - 1) : k + 1]]
    assert cli("apply", "t.calib", name, *scores, "-o", "out.npz").status == 0
    np.testing.assert_allclose(cli.probabilities("out.npz"), fitted.predict(arrays[kind]), 1e-6)
    (entry,) = cli("compare", name, name, *options, "--maps", "temperature", "--json").json
    assert entry["metrics"]["nll"] < recalib.evaluate(**arrays)["nll"]
    report = ("report", name, name, *options, "--maps", "temperature", "-o", "r.html", "--json")
    assert cli(*report).json["recommended"]["map"]
    (cli.folder / "more.csv").write_bytes((cli.folder / name).read_bytes())
    both = cli("evaluate", name, "more.csv", *options, "--metrics", "nll", "--json").json
    assert both["nll"] == pytest.approx(recalib.evaluate(**arrays)["nll"])


def test_questions_with_fewer_options_have_masked_classes(cli: Cli) -> None:
    rows = samples(False)
    del rows[0]["filtered_resps"][2]
    rows[0]["target"] = "1"
    lines(rows)(cli.folder / "a.jsonl")
    logits, labels = LOGITS.copy(), LABELS.copy()
    logits[0, 2], labels[0] = -np.inf, 1
    measured = cli("evaluate", "a.jsonl", "--metrics", "nll", "--json").json
    assert measured == pytest.approx(dict(recalib.evaluate(labels, logits=logits, metrics="nll")))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pkl", pickle.dumps(LOGITS), "a pickle runs code when it is read"),
        ("a.npy", b"\x93NUMPY", "logits: found a file that ends too early"),
        ("a.csv", b"a;b,c\n1;2,3\n", "separator: found ',' and ';' between the columns"),
        ("a.csv", b"logit,y_true,ground_truth\n1,0,1\n", "labels: found both 'y_true' and 'gro"),
        ("a.csv", b"logit_0,logit_1\n1,2\n", '"label", or --label name with its name'),
        (
            "a.csv",
            b"logit_0,logit_1,label\n1,2,-1\n2,1,0\n",
            "labels[0]: found -1; accepted: 0 and 1, or -1",
        ),
        ("a.csv", b"logit_0;logit_1;label\n1,5;2;0\n1.5;2;0\n", "found '1,5'; accepted: a number"),
        ("a.jsonl", b'{"logits": [1, 2], "label": 0}\n{"logits": [1], "label": 0}\n', "logits[1]"),
        ("a.jsonl", b'{"logits": [1, 2], "label": 0}\n[1]\n', "data[1]: found array"),
        ("a.jsonl", b"", "no rows"),
        (
            "a.jsonl",
            json.dumps(samples(False)[0] | {"filtered_resps": ["a text"]}).encode(),
            "data[0].filtered_resps: found ['a text']",
        ),
        (
            "a.jsonl",
            json.dumps(samples(False)[0] | {"target": "cow"}).encode(),
            "data[0].target: found 'cow'; accepted: the index of one option, or its text: cat",
        ),
    ],
)
def test_error_says_what_to_do(cli: Cli, name: str, content: bytes, message: str) -> None:
    cli.write(name, content)
    result = cli("evaluate", name)
    assert result.status == 2
    assert message in result.err
