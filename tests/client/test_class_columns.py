"""Columns of data frames and texts of labels, which have the names of a model's classes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from recalib.client import Client, ResourceNotFoundError
from recalib.client.labels import check_row_labels
from recalib.errors import InputError, RecalibWarning
from tests.client.either import Either
from tests.client.flaky import Flaky, problem, says
from tests.end_to_end.programs import Server
from tests.fitting.conftest import draw

NAMES = ["cat", "dog", "emu", "fox"]
LOGITS, LABELS = draw(300, 4, 3.0)
#: The classes in another order.
ORDER = [2, 0, 3, 1]
SHUFFLED = [NAMES[k] for k in ORDER]
MODEL = {"name": "m", "classes": 4, "labels": NAMES, "created_at": "2026-01-01T00:00:00Z"}


def pandas_frame(rows: Any, names: Any) -> Any:
    return pd.DataFrame(rows, columns=names)


def polars_frame(rows: Any, names: Any) -> Any:
    return pl.DataFrame(np.ascontiguousarray(rows), schema=names)


def arrow_table(rows: Any, names: Any) -> Any:
    return pa.table(dict(zip(names, rows.T, strict=True)))


def scores_of(names: list[str]) -> list[str]:
    return [f"score of {name}" for name in names]


FRAMES = [pandas_frame, polars_frame, arrow_table]


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    """A model with names of its classes, and a champion that is no symmetric map."""
    with Client(server.url) as client:
        client.create_model("pets", NAMES)
        client.upload_dataset("pets", "val", LOGITS, LABELS, progress=False)
        client.wait(client.fit("pets", "val", map="vector", promote=True), progress=False)
    return "pets"


@pytest.mark.parametrize("frame", FRAMES)
def test_columns_of_a_frame_are_taken_by_name(
    client: Either, model: str, frame: Callable[..., Any]
) -> None:
    rows = LOGITS[:20]
    shuffled = frame(rows[:, ORDER], SHUFFLED)
    expected = client.calibrate(model, rows)
    np.testing.assert_array_equal(client.calibrate(model, shuffled), expected)
    np.testing.assert_array_equal(client.predict(model, shuffled).probabilities, expected)
    top = client.calibrate_top(model, shuffled, 1)
    np.testing.assert_array_equal(top.classes[:, 0], expected.argmax(axis=1))

    times = time.time() - np.arange(5.0)
    first = client.add_observations(model, rows[:5], LABELS[:5], times)
    again = client.add_observations(model, frame(rows[:5, ORDER], SHUFFLED), LABELS[:5], times)
    assert (first.counts, again.counts) == ({"accepted": 5}, {"duplicate": 5})


@pytest.mark.parametrize("frame", FRAMES)
def test_an_uploaded_frame_is_that_of_its_names(
    client: Either, model: str, frame: Callable[..., Any]
) -> None:
    """With texts as labels, in a series or in a list."""
    texts = pd.Series(np.array(NAMES)[LABELS])
    shuffled = frame(LOGITS[:, ORDER], SHUFFLED)
    digest = client.get_dataset(model, "val").digest
    for labels in (texts, texts.tolist(), texts.astype("category"), LABELS.astype(float)):
        name = uuid4().hex
        assert client.upload_dataset(model, name, shuffled, labels).digest == digest


@pytest.mark.parametrize("frame", FRAMES)
def test_other_columns_beside_those_of_the_classes_are_no_scores(
    client: Either, model: str, frame: Callable[..., Any], tmp_path: Path
) -> None:
    """`label` names the labels and `scores` the scores, also of a file."""
    digest = client.get_dataset(model, "val").digest
    numbers = np.column_stack([np.arange(300), LOGITS[:, ORDER], LABELS])
    full = frame(numbers, ["id", *SHUFFLED, "y"])
    np.testing.assert_array_equal(client.calibrate(model, full), client.calibrate(model, LOGITS))
    assert client.upload_dataset(model, uuid4().hex, full, LABELS).digest == digest
    assert client.upload_dataset(model, uuid4().hex, full, label="y").digest == digest
    other, scores = frame(numbers, ["id", *scores_of(SHUFFLED), "y"]), scores_of(NAMES)
    uploaded = client.upload_dataset(model, uuid4().hex, other, label="y", scores=scores)
    assert uploaded.digest == digest
    path = tmp_path / "val.csv"
    texts = np.array(NAMES)[LABELS]
    pd.DataFrame(numbers[:, :-1], columns=["id", *scores_of(SHUFFLED)]).assign(y=texts).to_csv(
        path, index=False, sep=";"
    )
    uploaded = client.upload_dataset(model, uuid4().hex, path, label="y", scores=scores)
    assert uploaded.digest == digest


def test_names_of_columns_that_do_not_exist_are_refused(
    client: Either, model: str, tmp_path: Path
) -> None:
    full = pd.DataFrame(LOGITS, columns=NAMES).assign(y=LABELS)
    full.to_csv(path := tmp_path / "val.csv", index=False)
    for data, options, message in (
        (full, {}, "labels: found none; accepted: labels for each row, or label= with"),
        (full, {"label": "x"}, "label: found 'x'; accepted: one of cat, dog, emu, fox, y"),
        (full, {"label": "y", "scores": ["ca"]}, "scores: found 'ca'; accepted: one of cat"),
        (LOGITS, {"label": "y"}, "label: found 'y'; accepted: a data frame with names"),
        (full, {"label": "y", "labels": LABELS}, "label: found label and labels; accepted: one"),
        (path, {"label": "x"}, "label: found 'x'; accepted: one of 'cat'"),
        (path, {}, "labels: found none; accepted: a column or array labels, label, y_true or"),
    ):
        with pytest.raises(InputError, match=message):
            client.upload_dataset(model, "x", data, **options)


def test_columns_with_other_names_are_refused(client: Either, model: str) -> None:
    """Also if they have no name of a class, such as names in upper case; numbers are positions."""
    rows = LOGITS[:3]
    upper = [name.upper() for name in NAMES]
    for names in (["cat", "dog", "emu", "cow"], upper):
        frame = pd.DataFrame(rows, columns=names)
        message = rf"logits: found columns {names[0]}, .*; accepted: columns cat, dog, emu, fox, "
        for call in (
            lambda frame=frame: client.calibrate(model, frame),
            lambda frame=frame: client.add_observations(model, frame, LABELS[:3], [1, 2, 3]),
            lambda frame=frame: client.upload_dataset(model, "x", frame, LABELS[:3]),
            lambda frame=frame: client.create_batch(model, frame),
        ):
            with pytest.raises(InputError, match=message):
                call()
    expected = client.calibrate(model, rows)
    for columns in (None, ["logit_0", "logit_1", "logit_2", "logit_3"]):
        frame = pd.DataFrame(rows, columns=columns)
        np.testing.assert_array_equal(client.calibrate(model, frame), expected)
    reverse = pd.DataFrame(rows[:, ::-1], columns=[f"z{k}" for k in (3, 2, 1, 0)])
    np.testing.assert_array_equal(client.calibrate(model, reverse), expected)


def test_names_are_read_once(client_of: Callable[..., Either], flaky: Flaky) -> None:
    """And again for other names: a model of this name may have been created anew."""
    refused = problem(404, "none")
    frame = pd.DataFrame(LOGITS[:2], columns=NAMES)
    flaky.will(says(200, MODEL), refused, refused, refused, says(200, MODEL))
    client = client_of(flaky.url)
    for rows in (frame, frame[SHUFFLED], LOGITS[:2]):
        with pytest.raises(ResourceNotFoundError):
            client.calibrate("m", rows)
    with pytest.raises(InputError, match="found columns cat, dog, emu, cow"):
        client.calibrate("m", frame.rename(columns={"fox": "cow"}))
    paths = [seen.path for seen in flaky.received]
    calibrate = ["/v1/models/m/calibrate"]
    assert [path.partition("?")[0] for path in paths] == [
        "/v1/models/m", *calibrate * 3, "/v1/models/m"
    ]  # fmt: skip


def test_a_key_for_predictions_alone_takes_columns_by_position(
    client_of: Callable[..., Either], flaky: Flaky
) -> None:
    """Each frame is warned about; only the first asks for the names."""
    flaky.will(problem(403, "no"), *[problem(404, "none")] * 2)
    frame, client = pd.DataFrame(LOGITS[:2], columns=SHUFFLED), client_of(flaky.url)
    for _ in range(2):
        with (
            pytest.warns(RecalibWarning, match="logits: the columns are taken by position, since"),
            pytest.raises(ResourceNotFoundError, match="none"),
        ):
            client.calibrate("m", frame)
    assert [seen.path.partition("?")[0] for seen in flaky.received] == [
        "/v1/models/m", *["/v1/models/m/calibrate"] * 2
    ]  # fmt: skip


def test_texts_need_names_of_classes(client: Either, name: str) -> None:
    """Those of the model, or else of the columns."""
    client.create_model(name, 4)
    texts = np.array(NAMES)[LABELS]
    with pytest.raises(InputError, match="texts, but the classes of the model have no names; acc"):
        client.upload_dataset(name, "a", LOGITS, texts)
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    digest = client.upload_dataset(name, "a", frame, texts).digest
    assert client.upload_dataset(name, "b", LOGITS, LABELS).digest == digest


def test_labels_that_are_numbers_are_not_names(server: Server, name: str, tmp_path: Path) -> None:
    """Names of a model may be numbers of other classes."""
    columns = [f"logit_{k}" for k in range(4)]
    path = tmp_path / "val.csv"
    pd.DataFrame(LOGITS, columns=columns).assign(label=LABELS).to_csv(path, index=False)
    with Client(server.url) as client:
        client.create_model(name, ["1", "2", "3", "4"])
        accuracy = client.upload_dataset(name, "a", path, progress=False).metrics["accuracy"].value
    assert accuracy == (LOGITS.argmax(axis=1) == LABELS).mean()


def test_columns_of_a_label_matrix_are_taken_by_name(client: Either, name: str) -> None:
    client.create_model(name, NAMES, task="multilabel")
    matrix = LOGITS > 0
    ours = pd.DataFrame(matrix[:, ORDER], columns=SHUFFLED)
    digest = client.upload_dataset(name, "a", LOGITS, matrix).digest
    scores = pd.DataFrame(LOGITS[:, ORDER], columns=SHUFFLED)
    assert client.upload_dataset(name, "b", scores, ours).digest == digest


@pytest.mark.parametrize(
    "labels",
    [
        [1, 0, 3],
        np.array([1, 0, 3]),
        np.array([1.0, 0.0, 3.0]),
        [np.float64(1), 0.0, np.int64(3)],
        pd.Series([1.0, 0.0, 3.0]),
        pd.Series([1, 0, 3], dtype="Int64"),
        pl.Series([1.0, 0.0, 3.0]),
        pa.array([1.0, 0.0, 3.0]),
        pa.chunked_array([[1], [0, 3]]),
        np.array([[1], [0], [3]]),
    ],
)
def test_whole_floats_are_class_indices(labels: Any) -> None:
    assert check_row_labels(labels) == [1, 0, 3]
    assert all(type(label) is int for label in check_row_labels(labels))


@pytest.mark.parametrize(
    "labels",
    [
        [0, None, 1, float("nan")],
        np.array([0, np.nan, 1, np.nan]),
        pd.Series([0, None, 1, None]),
        pd.Series([0, None, 1, None], dtype="Int64"),
        pd.Series(["a", None, "b", pd.NA]),
        pl.Series([0, None, 1, None]),
        pa.array([0, None, 1, None]),
    ],
)
def test_rows_without_a_label_are_named(labels: Any) -> None:
    message = r"labels: found no label in 2 of 4 rows: 1, 3; accepted: rows whose label is known"
    with pytest.raises(InputError, match=message):
        check_row_labels(labels)
    with pytest.raises(InputError, match=r"20 of 20 rows: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.;"):
        check_row_labels([None] * 20)


@pytest.mark.parametrize("label", [1.5, True, {}, b"x"])
def test_labels_of_other_types_are_rejected(label: Any) -> None:
    with pytest.raises(InputError, match=r"labels\[1\]: found .*; accepted: a class index or a"):
        check_row_labels([0, label])


def test_files_with_the_names_of_the_classes_are_read_by_name(
    server: Server, model: str, tmp_path: Path
) -> None:
    """By uploads, fits and batches, with names as labels; and an Arrow body of calibrate."""
    texts = pd.Series(np.array(NAMES)[LABELS])
    named = pd.DataFrame(LOGITS[:, ORDER], columns=SHUFFLED).assign(label=texts)
    numbered = pd.DataFrame(LOGITS, columns=[f"logit_{k}" for k in range(4)]).assign(label=texts)
    named.to_csv(tmp_path / "named.csv", index=False)
    named.to_parquet(tmp_path / "named.parquet")
    named.to_json(tmp_path / "named.jsonl", orient="records", lines=True)
    numbered.to_csv(tmp_path / "numbered.csv", index=False)
    with Client(server.url) as client:
        expected = client.get_dataset(model, "val").metrics
        for path in sorted(tmp_path.iterdir()):
            dataset = client.upload_dataset(model, path.name, path, progress=False)
            for name in ("accuracy", "nll"):
                value = dataset.metrics[name].value
                assert value == pytest.approx(expected[name].value, rel=1e-6), path.name
        fit = client.fit(model, "named.parquet", map="vector", promote=False)
        version = (client.wait(fit, progress=False).result or {})["version"]
        ours = client.calibrate(model, LOGITS[:4], calibrator=version)
        np.testing.assert_allclose(ours, client.calibrate(model, LOGITS[:4]), atol=1e-5)

        job = client.create_batch(model, tmp_path / "named.parquet", format="npz", progress=False)
        client.wait(job, progress=False)
        client.download_batch(model, job, tmp_path / "out.npz", progress=False)
        rows = client.calibrate(model, LOGITS[:3])
        answer = np.load(tmp_path / "out.npz")["probabilities"][:3]
        np.testing.assert_allclose(answer, rows, atol=1e-6)

    table, body = arrow_table(LOGITS[:3, ORDER], SHUFFLED), io.BytesIO()
    with pa.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)
    result = httpx2.post(
        f"{server.url}/v1/models/{model}/calibrate",
        content=body.getvalue(),
        headers={"Content-Type": "application/vnd.apache.arrow.stream"},
    )
    np.testing.assert_allclose(result.json()["probabilities"], rows, atol=1e-6)
