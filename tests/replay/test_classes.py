"""Class-wise monitoring of a log: the column `label`, and the classes that are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recalib.errors import InputError
from recalib.replay import ReplayOptions, replay
from tests.drift.test_class_monitor import draw, labels_of, swap_two
from tests.replay.logs import START, write

_DAY = 86_400.0


def log(rows: int = 10_000, *, swap: bool, seed: int = 0) -> dict:
    """Return a log of four classes; two are exchanged from half-way on."""
    rng = np.random.default_rng(seed)
    p, y, _ = draw(rng, rows)
    if swap:
        y[rows // 2 :] = labels_of(rng, swap_two(p[rows // 2 :]))
    labelled = rng.random(rows) < 0.9
    return {
        "time": START + np.sort(rng.random(rows)) * 10 * _DAY,
        "probabilities": list(p),
        "label": pa.array(np.where(labelled, y, None).tolist(), pa.int64()),
        "correct": pa.array(np.where(labelled, p.argmax(axis=1) == y, None).tolist(), pa.bool_()),
    }


def options(**values) -> ReplayOptions:
    return ReplayOptions(cohort=_DAY / 2, **values)


@pytest.mark.slow
def test_swapped_classes_are_found_only_with_class_wise_monitoring(tmp_path: Path):
    path = write(tmp_path / "a.parquet", log(swap=True), row_group_size=1_500)
    without = replay(path, options())
    assert without.state == "fresh"
    assert without.classes is None
    result = replay(path, options(classes=("all",)))
    assert result.state == "stale"
    assert result.events[-1].time > START + 5 * _DAY
    assert result.events[-1].status.onset == pytest.approx(START + 5 * _DAY, abs=1.5 * _DAY)
    assert result.classes is not None
    assert result.classes.watched == 4
    assert result.classes.labels == result.labelled
    json.dumps(result.to_dict(), allow_nan=False)
    chosen = replay(path, options(classes=("2", "0")))
    assert chosen.classes is not None
    assert {gap.class_index for gap in chosen.classes.worst} == {0, 2}


def test_predicted_class_whose_labels_stop_is_named(tmp_path: Path):
    """The log is fresh without class-wise monitoring, as other classes have such confidences."""
    columns = log(6_000, swap=False)
    late = np.arange(6_000) >= 3_000
    silent = late & (np.argmax(columns["probabilities"], axis=1) == 2)
    for name in ("label", "correct"):
        values = np.array(columns[name].to_pylist(), object)
        values[silent] = None
        columns[name] = pa.array(values.tolist(), columns[name].type)
    path = write(tmp_path / "a.parquet", columns)
    short = {"window_labels": 1_000, "objective": 0.1, "maturity": 0.0}
    result = replay(path, options(classes=("all",), **short))
    assert result.state == "unverified"
    assert "no labels for predictions of class 2" in result.events[-1].status.reason
    assert result.classes is not None
    assert [window.class_index for window in result.classes.windows if window.silent] == [2]
    assert replay(path, options(**short)).state == "fresh"


def test_order_of_rows_and_column_confidence_do_not_matter(tmp_path: Path):
    columns = log(2_000, swap=True)
    result = replay(write(tmp_path / "a.parquet", columns), options(classes=("all",)))
    columns["confidence"] = np.max(columns["probabilities"], axis=1)
    table = pa.table(columns).take(np.random.default_rng(1).permutation(2_000))
    other = tmp_path / "b.parquet"
    pa.parquet.write_table(table, other, row_group_size=300)
    assert replay(other, options(classes=("all",))).classes == result.classes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "label: found"),
        ({"probabilities": None, "confidence": [0.9] * 50}, "probabilities: found"),
        ({"label": [4] * 50}, r"label\[0\]: found 4; accepted: 0 to 3"),
        ({"label": [-1] * 50}, r"label\[0\]: found -1"),
        ({"label": [0.5] * 50}, r"label\[0\]: found 0.5; accepted: 0 to 3"),
        ({"label": pa.array([None] * 50, pa.int64())}, r"label\[0\]: found null"),
        ({"correct": [False] * 50}, r"label\[0\]: found 0; .* where `correct` is true"),
        ({"label": [2] * 50}, r"label\[0\]: found 2; .* where `correct` is true"),
    ],
)
def test_invalid_labels_are_rejected(tmp_path: Path, changes: dict, message: str):
    columns = {
        "time": np.arange(50.0),
        "probabilities": [[0.7, 0.1, 0.1, 0.1]] * 50,
        "label": [0] * 50,
        "correct": [True] * 50,
    }
    columns = {name: value for name, value in (columns | changes).items() if value is not None}
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(InputError, match=message):
        replay(path, ReplayOptions(classes=("all",)))


def test_unrelated_column_label_is_not_read(tmp_path: Path):
    columns = log(300, swap=False) | {"label": ["a text"] * 300}
    assert replay(write(tmp_path / "a.parquet", columns), options()).rows == 300
    unknown = write(tmp_path / "b.parquet", log(300, swap=False))
    with pytest.raises(InputError, match="classes: found 'cat'"):
        replay(unknown, options(classes=("cat",)))
