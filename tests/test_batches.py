"""`map_batches` in data engines: equal to `predict` and `evaluate` on all rows in one process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import recalib
from recalib import Calibrator, StreamingEvaluation
from recalib.errors import InputError, NotFoundError
from recalib.metrics import Estimate

K = 3
ROWS = 2_000
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, K, ROWS)
LOGITS = (3 * np.eye(K)[LABELS] + 3 * RNG.normal(size=(ROWS, K))).astype(np.float32)


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    return recalib.fit(LOGITS[:500], LABELS[:500], map="vector")


@pytest.fixture(scope="module")
def expected(calibrator: Calibrator) -> Any:
    return calibrator.predict(LOGITS)


@pytest.fixture(scope="module")
def metrics(expected: Any) -> dict[str, Estimate]:
    evaluation = StreamingEvaluation(K)
    evaluation.add(LABELS, probabilities=expected)
    return evaluation.finish(0.95)


def table() -> Any:
    return pa.table({"logits": LOGITS.tolist(), "label": LABELS}).cast(
        pa.schema([("logits", pa.list_(pa.float32())), ("label", pa.int64())])
    )


def check_probabilities(column: Any, expected: Any) -> None:
    """One and two threads, or float64, may differ in the last digits of float32."""
    np.testing.assert_allclose(np.stack(list(column)), expected, rtol=1e-5, atol=1e-7)


def check_metrics(parts: Any, metrics: dict[str, Estimate]) -> None:
    evaluations = [StreamingEvaluation.from_bytes(part) for part in parts]
    assert len(evaluations) > 1
    merged = StreamingEvaluation(K).merge(*evaluations)
    assert merged.rows == ROWS
    for name, estimate in merged.finish(0.95).items():
        assert estimate.value == pytest.approx(metrics[name].value, rel=1e-4, abs=1e-6), name


@pytest.mark.slow
def test_dask(calibrator: Calibrator, expected: Any, metrics: dict[str, Estimate]) -> None:
    """Frames of pandas in several processes; columns of numbers give Dask the types it needs."""
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(LOGITS, columns=[f"logit_{k}" for k in range(K)]).assign(label=LABELS)
    parts = dd.from_pandas(frame, npartitions=3)
    calibrated = parts.map_partitions(calibrator.map_batches)
    answer = calibrated.compute(scheduler="threads")
    check_probabilities(answer["probabilities"], expected)
    assert list(answer.index) == list(frame.index)
    rows = calibrated.map_partitions(StreamingEvaluation(K).map_batches, meta={"evaluation": "O"})
    check_metrics(rows.compute(scheduler="threads")["evaluation"], metrics)


def test_polars(calibrator: Calibrator, expected: Any, metrics: dict[str, Estimate]) -> None:
    """A lazy frame, and an expression in a query; evaluation by slices of the frame."""
    frame = pl.from_arrow(table())
    answer = frame.lazy().map_batches(
        calibrator.map_batches, schema=frame.schema | {"probabilities": pl.List(pl.Float32)}
    )
    check_probabilities(answer.collect()["probabilities"], expected)
    column = pl.col("logits").map_batches(calibrator.map_batches, return_dtype=pl.List(pl.Float32))
    check_probabilities(frame.select(column)["logits"], expected)
    evaluation = StreamingEvaluation(K)
    slices = answer.collect().iter_slices(700)
    check_metrics([evaluation.map_batches(part)["evaluation"][0] for part in slices], metrics)


def test_duckdb(calibrator: Calibrator, expected: Any, metrics: dict[str, Estimate]) -> None:
    """A function of SQL on columns, and streams of record batches."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("logits_table", table())
    # DuckDB counts the parameters of a function, options included.
    connection.create_function(
        "calibrate",
        lambda logits: calibrator.map_batches(logits),
        ["FLOAT[]"],
        "FLOAT[]",
        type="arrow",
    )
    answer = connection.sql("select calibrate(logits) as p from logits_table").to_arrow_table()
    check_probabilities(answer["p"].to_pylist(), expected)
    reader = connection.sql("select logits, label from logits_table").to_arrow_reader(600)
    cursor = connection.cursor()  # the first connection is busy with the stream
    cursor.register("calibrated", calibrator.map_batches(reader))
    counts = cursor.sql("select count(*), sum(list_sum(probabilities)) from calibrated")
    assert counts.fetchall()[0] == pytest.approx((ROWS, ROWS), abs=1e-2)
    reader = calibrator.map_batches(connection.sql("from logits_table").to_arrow_reader(600))
    parts = [next(StreamingEvaluation(K).map_batches(iter([batch]))) for batch in reader]
    check_metrics([part["evaluation"][0].as_py() for part in parts], metrics)


def dictionary(part: Any) -> Any:
    """What Ray passes: columns as arrays."""
    return {"logits": np.stack(part["logits"].to_pylist()), "label": part["label"].to_numpy()}


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "Arrow table": lambda part: part,
    "Arrow record batch": lambda part: part.combine_chunks().to_batches()[0],
    "Arrow columns by class": lambda part: pa.table(
        {f"logit_{k}": np.stack(part["logits"].to_pylist())[:, k] for k in range(K)}
        | {"labels": part["label"]}
    ),
    "pandas lists": lambda part: part.to_pandas(),
    "pandas columns by number": lambda part: pd.DataFrame(
        np.stack(part["logits"].to_pylist()), index=range(7, 7 + len(part))
    ).assign(label=part["label"].to_numpy()),
    "polars": pl.from_arrow,
    "dictionary": dictionary,
}


@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
def test_batch_has_the_type_of_its_input(
    convert: Callable[[Any], Any],
    calibrator: Calibrator,
    expected: Any,
    metrics: dict[str, Estimate],
) -> None:
    batches = [convert(table().slice(start, 900)) for start in range(0, ROWS, 900)]
    answers = [calibrator.map_batches(batch) for batch in batches]
    assert [type(answer) for answer in answers] == [type(batch) for batch in batches]
    lists = [row for answer in answers for row in as_rows(answer["probabilities"])]
    check_probabilities(lists, expected)
    evaluation = StreamingEvaluation(K)
    parts = [evaluation.map_batches(answer)["evaluation"][0] for answer in answers]
    check_metrics([getattr(part, "as_py", lambda part=part: part)() for part in parts], metrics)
    assert evaluation.rows == 0
    stream = evaluation.map_batches(iter(answers))  # as Spark: one row for all batches
    (part,) = (row["evaluation"][0] for row in stream)
    data = getattr(part, "as_py", lambda: part)()
    assert StreamingEvaluation.from_bytes(data).rows == ROWS


def as_rows(column: Any) -> Any:
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def test_iterator_gives_an_iterator(calibrator: Calibrator, expected: Any) -> None:
    """As Spark calls it."""
    answers = calibrator.map_batches(iter(table().to_batches(max_chunksize=300)))
    check_probabilities(np.concatenate([as_rows(a["probabilities"]) for a in answers]), expected)


def test_empty_batches_keep_types(calibrator: Calibrator) -> None:
    """Partitions may be empty; float64 columns give float64."""
    empty = table().slice(0, 0)
    types = [
        calibrator.map_batches(empty.cast(pa.schema([("logits", pa.list_(kind)), empty.field(1)])))
        .schema.field("probabilities")
        .type.value_type
        for kind in (pa.float32(), pa.float64())
    ]
    assert types == [pa.float32(), pa.float64()]
    assert list(calibrator.map_batches(empty.to_pandas()).columns)[-1] == "probabilities"
    assert StreamingEvaluation(K).map_batches(empty.append_column("probabilities", empty[0]))


def test_columns_are_named(calibrator: Calibrator, expected: Any) -> None:
    scores = table().rename_columns(["scores", "label"])
    answer = calibrator.map_batches(scores, column="scores", output="p")
    check_probabilities(answer["p"].to_pylist(), expected)
    replaced = calibrator.map_batches(scores, column="scores", output="scores")
    assert replaced.schema.names == ["scores", "label"]
    columns = pd.DataFrame(LOGITS, columns=list("cab")).assign(label=LABELS)
    answer = partial(calibrator.map_batches, column=["c", "a", "b"])(columns)
    check_probabilities(answer["probabilities"], expected)
    named = recalib.fit(columns[list("cab")], np.array(list("cab"))[LABELS])
    answer = named.map_batches(columns[["label", "b", "c", "a"]])
    check_probabilities(answer["probabilities"], named.predict(LOGITS))


def test_unusable_batches_are_rejected(calibrator: Calibrator) -> None:
    with pytest.raises(InputError) as info:
        calibrator.map_batches(table(), column="score")
    assert info.value.field == "column"
    with pytest.raises(InputError, match="logits"):
        calibrator.map_batches(table().select(["label"]))
    with pytest.raises(InputError, match="data: found list"):
        calibrator.map_batches([1, 2])
    nulls = pa.table({"logits": pa.array([[1, 2, 3], None], pa.list_(pa.float32()))})
    with pytest.raises(InputError, match=r"logits\[1\]: found null"):
        calibrator.map_batches(nulls)
    with pytest.raises(InputError, match="labels: found no column"):
        StreamingEvaluation(K).map_batches(table().select(["logits"]), input="logits")


def test_errors_of_workers_arrive() -> None:
    """Engines pickle what a worker raises."""
    for error in (InputError("a", found="b", accepted="c"), NotFoundError("model", "digits")):
        restored = pickle.loads(pickle.dumps(error))
        assert (type(restored), str(restored)) == (type(error), str(error))
        assert vars(restored) == vars(error)


def test_copies_share_one_session_in_a_process(calibrator: Calibrator, expected: Any) -> None:
    """Pickles hold no session; tasks of one worker do not create another one each."""
    calibrator.predict(LOGITS)
    data = pickle.dumps(calibrator)
    assert len(data) < 10_000
    copies = [pickle.loads(data), pickle.loads(data), copy.deepcopy(calibrator)]
    with ThreadPoolExecutor(3) as pool:
        sessions = list(pool.map(lambda copied: copied.session, copies))
    assert len({id(session) for session in sessions}) == 1
    assert sessions[0] is not calibrator.session
    assert copies[0] == calibrator
    check_probabilities(copies[0].predict(LOGITS), expected)
    other = pickle.loads(pickle.dumps(recalib.fit(LOGITS, LABELS)))
    assert other.session is not sessions[0]


def test_text_is_named_with_its_column() -> None:
    """With the name that the frame has."""
    names = ["ant", "bee", "cat"]
    labels = np.arange(60) % 3
    logits = 2 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
    calibrator = recalib.fit(logits, labels, class_labels=names)
    frame = pd.DataFrame(logits, columns=names)
    assert calibrator.map_batches(frame).shape == (60, 4)
    with pytest.raises(InputError, match=r"^cat: found a column of type .*string"):
        calibrator.map_batches(frame.assign(cat="x"))
