"""Every container of scores x order of its columns x kind of labels: right, or an error."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import recalib
from recalib.errors import InputError
from recalib.files import DataSelection, open_data, read
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(200, 12, 2.0)
RIGHT = float(recalib.fit(LOGITS, LABELS).parameters["temperature"])
APPROX = pytest.approx(RIGHT, rel=1e-9)
NUMBERED = [f"logit_{k}" for k in range(12)]
NAMES = [f"class {chr(ord('a') + k)}" for k in range(12)]

FRAMES: dict[str, Callable[[Any, list[str]], Any]] = {
    "pandas": lambda matrix, names: pd.DataFrame(matrix, columns=names),
    "polars": lambda matrix, names: pl.DataFrame(matrix, schema=names),
    "arrow": lambda matrix, names: pa.table(dict(zip(names, matrix.T, strict=True))),
}
WRITERS: dict[str, Callable[[Any, Any], None]] = {
    "csv": pyarrow.csv.write_csv,
    "parquet": pyarrow.parquet.write_table,
    "arrow": lambda table, sink: pyarrow.feather.write_feather(table, sink, "uncompressed"),
}
ORDERS = {
    "by number": np.arange(12),
    "as text": np.argsort(NUMBERED),
    "falling": np.arange(12)[::-1],
    "random": np.random.default_rng(0).permutation(12),
}
KINDS: dict[str, Any] = {
    "integers": LABELS,
    "whole floats": LABELS.astype(np.float32),
    "column": LABELS[:, None],
    "big-endian": LABELS.astype(">i4"),
    "digits": LABELS.astype(str),
    "digits of objects": LABELS.astype(str).astype(object),
    "categories of digits": pd.Categorical(LABELS.astype(str)),
    "names": np.array(NAMES)[LABELS],
}


def temperature_or_error(*arguments: Any, **options: Any) -> float:
    """Return the right temperature also for an error, which is as good."""
    try:
        return float(recalib.fit(*arguments, **options).parameters["temperature"])
    except InputError:
        return RIGHT


@pytest.mark.parametrize("prefix", ["logit_", "", "class"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("container", FRAMES)
def test_numbered_columns_of_a_frame_are_in_the_order_of_their_numbers(
    container: str, order: str, prefix: str
) -> None:
    columns = ORDERS[order]
    frame = FRAMES[container](LOGITS[:, columns], [f"{prefix}{k}" for k in columns])
    calibrator = recalib.fit(frame, LABELS)
    assert float(calibrator.parameters["temperature"]) == APPROX
    answer = calibrator.predict(frame)
    np.testing.assert_allclose(np.asarray(answer), calibrator.predict(LOGITS), rtol=1e-12)
    names = list(getattr(answer, "column_names", answer.columns))
    assert names == [f"{prefix}{k}" for k in range(12)]
    nll = recalib.evaluate(LABELS, logits=frame, metrics="nll")["nll"]
    assert nll == pytest.approx(recalib.evaluate(LABELS, logits=LOGITS, metrics="nll")["nll"])


@pytest.mark.parametrize("order", ORDERS)
def test_columns_that_are_integers_are_in_their_order(order: str) -> None:
    frame = pd.DataFrame(LOGITS)[list(ORDERS[order])]
    assert float(recalib.fit(frame, LABELS).parameters["temperature"]) == APPROX


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("container", ["array", *FRAMES])
def test_labels_of_every_kind_are_right_or_an_error(container: str, order: str, kind: str) -> None:
    columns = ORDERS[order] if container != "array" else ORDERS["by number"]
    labels = KINDS[kind]
    for names in (NUMBERED, NAMES):
        scores: Any = LOGITS
        if container != "array":
            scores = FRAMES[container](LOGITS[:, columns], [names[k] for k in columns])
        is_named = names is NAMES and container != "array"
        if is_named and kind != "names":
            continue  # the order of such columns is that of the classes: numbers follow it
        options = {"class_labels": tuple(NAMES)} if kind == "names" and not is_named else {}
        assert temperature_or_error(scores, labels, **options) == APPROX


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("format", WRITERS)
def test_tables_in_files_follow_the_same_rule(format: str, order: str, kind: str) -> None:
    columns, labels = ORDERS[order], np.asarray(KINDS[kind]).ravel()
    if kind == "big-endian":
        labels = labels.astype(np.int64)  # Arrow has no other byte order
    for names in (NUMBERED, NAMES):
        scores = dict(zip([names[k] for k in columns], LOGITS[:, columns].T, strict=True))
        sink = io.BytesIO()
        WRITERS[format](pa.table({**scores, "label": pa.array(labels.tolist())}), sink)
        try:
            given = None if names is NUMBERED else tuple(NAMES)
            data = read(sink, format=format, selection=DataSelection(class_names=given))
        except InputError:
            continue
        assert data.labels is not None
        assert temperature_or_error(data.logits, data.labels) == APPROX


def test_labels_from_1_are_an_error_that_says_so() -> None:
    for labels in (LABELS + 1, (LABELS + 1).astype(float)):
        with pytest.raises(InputError, match="subtract 1"):
            recalib.fit(LOGITS, labels)
    names = (LABELS + 1).astype(str)
    assert recalib.fit(LOGITS, names).card.labels == tuple(str(k) for k in range(1, 13))
    assert temperature_or_error(LOGITS, names) == APPROX


def test_index_of_pandas_in_another_order_is_an_error() -> None:
    frame = pd.DataFrame(LOGITS, columns=NUMBERED, index=[f"row {i}" for i in range(200)])
    labels = pd.Series(LABELS, index=frame.index)
    shuffled = labels.sample(frac=1, random_state=0)
    assert float(recalib.fit(frame, labels).parameters["temperature"]) == APPROX
    calibrator = recalib.fit(frame, pd.Series(LABELS))  # numbers of rows say nothing
    assert float(calibrator.parameters["temperature"]) == APPROX
    weights = pd.Series(np.ones(200), shuffled.index)
    for call in (
        lambda: recalib.fit(frame, shuffled),
        lambda: recalib.fit(frame, labels, sample_weight=weights),
        lambda: recalib.evaluate(shuffled, logits=frame),
        lambda: recalib.compare(frame, shuffled, maps="vector"),
        lambda: calibrator.evaluate(frame, shuffled),
        lambda: recalib.fit(LOGITS, labels, sample_weight=weights),
    ):
        with pytest.raises(InputError, match="another index than that of"):
            call()


def write(format: str, scores: Any, name: str, labels: Any) -> io.BytesIO:
    """Return a file with one column of scores."""
    sink = io.BytesIO()
    if format == "npz":
        np.savez(sink, **{name: scores, "labels": labels})
    elif format == "npy":
        np.save(sink, scores)
    elif format == "json":
        arrays = {name: scores.tolist(), "labels": labels.ravel().tolist()}
        sink.write(str(arrays).replace("'", '"').encode())
    else:
        WRITERS[format](pa.table({name: scores.ravel(), "label": labels.ravel()}), sink)
    return sink


@pytest.mark.parametrize("format", ["npz", "npy", "json", *WRITERS])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_column_in_a_file_is_that_of_class_1(format: str, shape: tuple[int, ...]) -> None:
    p = np.array([0.25, 0.5, 0.875]).reshape(shape)
    labels = np.array([0, 1, 1]).reshape(shape)
    with open_data(write(format, p, "probabilities", labels), format=format,
                   input="probabilities") as file:  # fmt: skip
        assert file.classes == 2
        chunk = next(file.chunks())
    assert chunk.logits.tolist() == [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]
    if format != "npy":
        assert chunk.labels is not None
        assert chunk.labels.tolist() == [0, 1, 1]
    sink = write(format, 2 * p, "probabilities", labels)
    with (
        pytest.raises(InputError, match=r"probabilities\[2\]\[1\]: found 1.75; accepted"),
        open_data(sink, format=format, input="probabilities") as file,
    ):
        list(file.chunks())


@pytest.mark.parametrize("format", WRITERS)
def test_a_column_of_numbers_may_be_named_in_the_singular(format: str) -> None:
    sink = write(format, np.array([0.5, -2.0, 1.0]), "logit", np.array([1, 0, 1]))
    assert read(sink, format=format).logits.tolist() == [[0, 0.5], [0, -2], [0, 1]]
