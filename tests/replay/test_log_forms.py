"""Logs in the forms that people have: ISO texts, units of integers, class names, columns, CSV."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from recalib.errors import InputError
from recalib.files import csv_table
from recalib.replay import Log, ReplayOptions, replay
from tests.replay.logs import log, write

Columns = dict[str, Any]
NAMES = ("cat", "dog", "bird")
OPTIONS = ReplayOptions(cohort=86_400.0, class_names=NAMES)


@pytest.fixture(scope="module")
def columns() -> Columns:
    """A log of three classes, whose times are whole milliseconds."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 1.5, (2_000, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = (p.cumsum(axis=1) < rng.random((2_000, 1))).sum(axis=1)
    time = np.sort(rng.integers(0, 30 * 86_400_000, 2_000)) / 1e3 + 1.7e9
    label = pa.array(truth, pa.int64(), mask=rng.random(2_000) < 0.3)
    return {"time": time, "probabilities": p.tolist(), "label": label}


@pytest.fixture(scope="module")
def expected(columns: Columns, tmp_path_factory: pytest.TempPathFactory) -> Columns:
    path = write(tmp_path_factory.mktemp("log") / "log.parquet", columns)
    return replay(path, OPTIONS).to_dict()


def _numbered(columns: Columns, names: Any) -> Columns:
    p = np.array(columns["probabilities"])
    rest = {name: column for name, column in columns.items() if name != "probabilities"}
    return rest | {name: p[:, k] for k, name in enumerate(names)}


def _times(columns: Columns, unit: str, zone: str | None = None) -> pa.Array:
    milliseconds = np.round(np.asarray(columns["time"]) * 1e3).astype(np.int64)
    times = pa.array(milliseconds).cast(pa.timestamp("ms", zone))
    return times.cast(pa.timestamp(unit, zone))


def _named(columns: Columns) -> pa.Array:
    return pa.array([k if k is None else NAMES[k] for k in columns["label"].to_pylist()])


def _csv(path: Path, columns: Columns) -> Path:
    pyarrow.csv.write_csv(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("unit", "form"), [("ms", "milliseconds"), ("us", "microseconds"), ("ns", "nanoseconds")]
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
def test_units_of_numbers_are_recognized_and_named(
    tmp_path: Path, columns: Columns, expected: Columns, unit: str, form: str, kind: Any
):
    times = _times(columns, unit).cast(pa.int64()).cast(kind, safe=False)
    result = replay(write(tmp_path / "log.parquet", columns | {"time": times}), OPTIONS).to_dict()
    assert result["times"] == {"time": form}
    assert expected["times"] == {"time": "seconds"}
    assert result["state"] == expected["state"]
    assert [window["labels"] for window in result["windows"]] == [
        window["labels"] for window in expected["windows"]
    ]


@pytest.mark.parametrize(
    ("texts", "form", "seconds"),
    [
        (["2026-01-31T23:59:59Z", "2026-02-01T01:59:59.5+02:00"], "texts with a time zone", 0.5),
        (["2026-01-31 23:59:59", "2026-01-31 23:59:59.250000"], "texts in UTC", 0.25),
        (["2026-01-31", "2026-02-01"], "texts in UTC", 86_400),
        (pa.array([20_484, 20_485], pa.date32()), "dates", 86_400),
        (pa.array([0, 1_500], pa.timestamp("ms", "Europe/Berlin")), "timestamps", 1.5),
    ],
)
def test_times_may_be_texts_and_dates(tmp_path: Path, texts: Any, form: str, seconds: float):
    rows = {"timestamp": texts, "confidence": [0.9, 0.8], "correct": [True, None]}
    with Log(write(tmp_path / "log.parquet", rows)) as opened:
        survey = opened.survey()
    assert opened.times == {"time": form}
    assert survey.last - survey.start == seconds


def test_names_and_columns_of_classes_are_those_of_lists_and_indices(
    tmp_path: Path, columns: Columns, expected: Columns
):
    named = columns | {"label": _named(columns)}
    logs = [
        columns | {"label": columns["label"].cast(pa.float64())},  # as pandas writes gaps
        named,
        _numbered(named, ("probability_0", "probability_1", "probability_2")),
        _numbered(named, ("prob_0", "prob_1", "prob_2")) | {"feature_0": columns["time"]},
        _numbered(named, NAMES),
    ]
    for number, rows in enumerate(logs):
        path = write(tmp_path / f"{number}.parquet", rows)
        assert replay(path, OPTIONS).to_dict() == expected


def test_csv_gives_the_result_of_parquet(
    tmp_path: Path, columns: Columns, expected: Columns, monkeypatch: pytest.MonkeyPatch
):
    """In parts, as a path, as an open file, in a folder, and in two files."""
    monkeypatch.setattr(csv_table, "_PART_BYTES", 20_000)
    rows = _numbered(columns | {"label": _named(columns)}, NAMES)
    path = _csv(tmp_path / "log.csv", rows)
    assert replay(path, OPTIONS).to_dict() == expected
    assert replay(io.BytesIO(path.read_bytes()), OPTIONS).to_dict() == expected
    assert replay(tmp_path, OPTIONS).to_dict() == expected
    for number, part in enumerate((slice(900, 2_000), slice(0, 900))):
        _csv(tmp_path / f"part-{number}.csv", {name: v[part] for name, v in rows.items()})
    assert replay(str(tmp_path / "part-*.csv"), OPTIONS).to_dict() == expected


def test_json_lines_and_tabs_give_the_result_of_parquet(
    tmp_path: Path, columns: Columns, expected: Columns, monkeypatch: pytest.MonkeyPatch
):
    """In parts, as a path, as an open file, and as tabs."""
    monkeypatch.setattr(csv_table, "_PART_BYTES", 20_000)
    rows = pa.table(columns | {"label": _named(columns), "other": [{"a": 1}] * 2_000}).to_pylist()
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert replay(path, OPTIONS).to_dict() == expected
    assert replay(io.BytesIO(path.read_bytes()), OPTIONS).to_dict() == expected
    numbered = pa.table(_numbered(columns | {"label": _named(columns)}, NAMES))
    tabs = tmp_path / "log.tsv"
    pyarrow.csv.write_csv(numbered, tabs, pyarrow.csv.WriteOptions(delimiter="\t"))
    assert replay(tabs, OPTIONS).to_dict() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"time": 1, "confidence": 0.5, "correct": 1}\n{no\n', r"JSON parse error.* row 1"),
        ('{"time": 1, "confidence": "half", "correct": true}\n', r"confidence\[0\]: found 'half'"),
        ("", "time: found no columns"),
    ],
)
def test_invalid_json_lines_are_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        replay(path)


def test_csv_has_all_columns_and_segments(tmp_path: Path):
    """Empty cells are null; types of other columns are inferred."""
    rows = log(600)
    rows["time"] = _times(rows, "ms", "UTC")
    rows |= {"segment": ["NA", "eu"] * 300, "speed": np.random.default_rng(0).random(600)}
    options = ReplayOptions(find_segments=("speed", "segment"))
    expected = replay(write(tmp_path / "log.parquet", rows), options).to_dict()
    result = replay(_csv(tmp_path / "log.csv", rows), options).to_dict()
    assert result.pop("times")["time"] == "texts with a time zone"
    assert expected.pop("times")["time"] == "timestamps"
    assert result == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,confidence,correct\n1,0.5,true\n2,half,true\n", r"confidence\[1\]: found 'half'"),
        ("time,confidence,correct\n1,0.5,true\n2,0.5,maybe\n", r"correct\[1\]: found 'maybe'"),
        ("time,confidence,correct\n1,0.5,true\n2,0.5\n", "row 1: Expected 3 columns, got 2"),
        ("time,confidence,correct\n", "no rows"),
        ("time,confidence\n1,0.5\n", "correct: found 'time', 'confidence'"),
        ("time,prob_0,prob_1,label\n1,0.5,0.5,cat\n", r"label\[0\]: found 'cat'.*class_names"),
        ("time,prob_0,prob_1,label\n1,0.5,,1\n", r"probabilities\[0\]\[1\]: found nan"),
        ("time,prob_0,prob_1,label\n1,0.5,x,1\n", r"prob_1\[0\]: found 'x'"),
        ("time,probabilities,correct\n1,5.0,1\n", r"probabilities\[0\]\[1\]: found 5"),
        ("time,label_time,confidence,correct\n1,x,0.5,1\n", r"label_time\[0\]: found 'x'"),
    ],
)
def test_invalid_text_is_refused_with_its_position(tmp_path: Path, text: str, message: str):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message), Log(path) as opened:
        opened.survey()


def test_unknown_class_name_is_refused_with_its_row(tmp_path: Path, columns: Columns):
    labels = _named(columns).to_pylist()
    labels[1_234] = "fish"
    path = write(tmp_path / "log.parquet", columns | {"label": labels})
    with pytest.raises(InputError, match=r"label\[1234\]: found 'fish'.*cat, dog, bird"):
        replay(path, OPTIONS)


def test_times_of_two_forms_are_refused(tmp_path: Path, columns: Columns):
    """Also if each row is a valid time, in different files."""
    parts = (columns["time"], np.asarray(columns["time"]) * 1e3)
    for number, time in enumerate(parts):
        write(tmp_path / f"{number}.parquet", columns | {"time": time})
    with pytest.raises(InputError, match=r"time\[0\]: found milliseconds; accepted: seconds"):
        replay(tmp_path, OPTIONS)
