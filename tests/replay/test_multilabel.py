"""Logs of multilabel predictions: a row is a prediction of one label that it draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recalib
from recalib.errors import InputError
from recalib.fitting import fit
from recalib.replay import Log, ReplayOptions, replay
from tests.replay.logs import START, write

_ROWS, _LABELS = 12_000, 3


def log(*, drift: bool, rows: int = _ROWS) -> dict[str, Any]:
    """Return a log of labels that occur together; from half on they can be too sure."""
    rng = np.random.default_rng(4)
    z = rng.normal(0, 2, (rows, _LABELS))
    labels = rng.random((rows, 1)) < 1 / (1 + np.exp(-z))
    sharpness = np.where(drift & (np.arange(rows) > rows // 2), 3.0, 1.0)[:, None]
    unknown = rng.random(rows) < 0.2
    sets = [None if u else row.tolist() for u, row in zip(unknown, labels, strict=True)]
    return {
        "time": START + np.arange(rows) * 60.0,
        "probabilities": list((1 / (1 + np.exp(-z * sharpness))).astype(np.float32)),
        "labels": pa.array(sets, pa.list_(pa.bool_())),
    }


def rows_of_log(path: Path) -> Any:
    with Log(path, multilabel=True) as opened:
        survey = opened.survey()
        ((_, rows),) = opened.slices(survey, 1e9, np.array([survey.rows]))
    return rows


def test_row_is_a_prediction_of_the_label_that_it_draws(tmp_path: Path) -> None:
    columns = log(drift=False, rows=3_000)
    rows = rows_of_log(write(tmp_path / "a.parquet", columns))
    index = np.arange(3_000)
    matrix = np.array(columns["probabilities"])
    assert np.array_equal(rows.confidence, matrix[index, rows.predicted])
    for label, drawn, correct in zip(
        columns["labels"].to_pylist(), rows.predicted, rows.correct, strict=True
    ):
        assert np.isnan(correct) if label is None else correct == label[drawn]
    # Uniform: a count is within 4 standard deviations of 1,000.
    counts = np.bincount(rows.predicted, minlength=_LABELS)
    assert np.abs(counts - 1_000).max() < 4 * np.sqrt(3_000 * 2 / 9)


def test_draw_depends_on_the_prediction_alone(tmp_path: Path) -> None:
    """Not on the labels, other rows, the order of rows or the type of the lists."""
    columns = log(drift=False, rows=500)
    first = rows_of_log(write(tmp_path / "a.parquet", columns)).predicted
    order = np.random.default_rng(0).permutation(500)[:400]
    flat = pa.array(np.array(columns["probabilities"])[order].ravel())
    other = {
        "time": columns["time"][order],
        "probabilities": pa.FixedSizeListArray.from_arrays(flat, _LABELS),
        "labels": pa.array([None if k % 2 else [1, 0, 1] for k in range(400)]),
    }
    second = rows_of_log(write(tmp_path / "b.parquet", other)).predicted
    assert np.array_equal(first[np.sort(order)], second)  # `slices` sorts by time


@pytest.mark.parametrize("classes", [(), ("all",)])
def test_labels_that_are_too_sure_are_stale(tmp_path: Path, classes: tuple[str, ...]) -> None:
    options = ReplayOptions(task="multilabel", classes=classes)
    columns = log(drift=True)
    result = replay(write(tmp_path / "a.parquet", columns), options)
    assert result.state == "stale"
    assert result.events[-1].time > columns["time"][_ROWS // 2]
    assert result.class_shares is None
    assert (result.classes is None) == (not classes)
    if result.classes is not None:
        assert result.classes.watched == _LABELS
        assert result.classes.log_evidence > result.classes.threshold


def test_calibrated_labels_are_fresh_in_any_number_of_files(tmp_path: Path) -> None:
    columns = log(drift=False)
    options = ReplayOptions(task="multilabel", classes=("all",))
    single = replay(write(tmp_path / "a.parquet", columns), options)
    assert (single.state, single.rows) == ("fresh", _ROWS)
    assert 0.78 * _ROWS < single.labelled < 0.82 * _ROWS
    (tmp_path / "parts").mkdir()
    for part in range(3):
        rows = slice(4_000 * part, 4_000 * part + 4_000)
        write(tmp_path / f"parts/{part}.parquet", {k: v[rows] for k, v in columns.items()})
    assert replay(tmp_path / "parts", options, cluster="threads:2").to_dict() == single.to_dict()


def test_arrays_give_the_states_of_the_file(tmp_path: Path) -> None:
    columns = log(drift=True, rows=6_000)
    expected = replay(write(tmp_path / "a.parquet", columns), ReplayOptions(task="multilabel"))
    labels = np.array(
        [[np.nan] * _LABELS if row is None else row for row in columns["labels"].to_pylist()],
        np.float32,
    )
    result = recalib.monitor(
        None,
        None,
        columns["time"],
        probabilities=np.array(columns["probabilities"]),
        label=labels,
        task="multilabel",
    )
    assert result.to_dict() == expected.to_dict()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "labels: found 'time', 'probabilities'"),
        ({"labels": pa.array([1] * 4)}, "labels: found a column of type int64"),
        ({"labels": pa.array([[1, 0], None, [0, 1], [1, 1]])}, r"labels\[0\]: found 2"),
        ({"labels": pa.array([None, [0, 1, 1], [0, 2, 1], None])}, r"labels\[2\]\[1\]: found 2"),
        ({"labels": pa.array([[0, 1, None]] * 4)}, r"labels\[0\]\[2\]: found null"),
        ({"probabilities": [[0.5, 0.5, 1.5]] * 4}, r"probabilities\[0\]\[2\]: found 1.5"),
        ({"label_time": [START] * 4}, r"label_time\[1\]: .*; accepted: null, since `labels`"),
    ],
)
def test_invalid_rows_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    columns: dict[str, Any] = {
        "time": START + np.arange(4.0),
        "probabilities": [[0.5, 0.2, 0.9]] * 4,
        "labels": pa.array([[0, 1, 1], None, [0, 0, 0], None]),
    }
    columns |= changes
    table = pa.table({name: values for name, values in columns.items() if values is not None})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        replay(tmp_path / "a.parquet", ReplayOptions(task="multilabel"))


def test_calibrator_and_columns_of_one_class_are_refused(tmp_path: Path) -> None:
    fitted = fit(np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 3)
    path = write(tmp_path / "a.parquet", log(drift=False, rows=100))
    with pytest.raises(InputError, match="calibrator: found task multiclass; accepted: none: "):
        replay(path, ReplayOptions(task="multilabel"), card=fitted.card)
    with pytest.raises(InputError, match="correct: found 2 values; accepted: None"):
        recalib.monitor(None, [1, 0], [0, 1], probabilities=np.ones((2, 2)), task="multilabel")
    with pytest.raises(InputError, match="task: found 'labels'"):
        ReplayOptions(task="labels")  # type: ignore[arg-type]
