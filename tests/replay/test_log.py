"""Logs: sorted by time, read in bounded memory, and refused if invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from recalib.errors import InputError, TooLargeError
from recalib.files import parquet
from recalib.registry import MAX_SEGMENTS
from recalib.replay import Log, ReplayOptions, replay
from recalib.replay import log as module
from tests.hostile.bombs import claimed_columns
from tests.replay.logs import START, log, write


def read(path: Path, cohorts: int = 7) -> list[dict[str, Any]]:
    with Log(path) as opened:
        survey = opened.survey()
        cohort = np.nextafter((survey.last - survey.start) / cohorts, np.inf)
        counts = opened.counts(survey, cohort, cohorts)
        parts = []
        for number, rows in opened.slices(survey, cohort, counts):
            assert len(rows.time) == counts[number]
            parts.append({"number": number, **vars(rows)})
    return parts


@pytest.mark.parametrize("most", [1, 300, 1 << 20])
def test_rows_are_sorted_by_time(tmp_path: Path, most: int):
    """Shuffled, in small row groups and a few rows at a time: the same cohorts."""
    columns = pa.table({**log(1_000), "segment": ["web", "app"] * 500})
    shuffled = columns.take(np.random.default_rng(0).permutation(1_000))
    first = read(
        write(tmp_path / "one.parquet", dict(zip(columns.column_names, columns, strict=True)))
    )
    with mock.patch.object(module, "_MAX_ROWS", most), mock.patch.object(module, "_BATCH", 50):
        path = tmp_path / "other.parquet"
        pa.parquet.write_table(shuffled, path, row_group_size=128)
        second = read(path)
    assert [part["number"] for part in first] == list(range(7))
    for actual, expected in zip(first, second, strict=True):
        assert np.all(np.diff(actual["time"]) >= 0)
        for name in actual:
            np.testing.assert_array_equal(actual[name], expected[name])
    np.testing.assert_array_equal(np.concatenate([x["time"] for x in first]), columns["time"])


def test_empty_cohorts_are_included(tmp_path: Path):
    path = write(
        tmp_path / "a.parquet",
        {"time": [0.0, 10.0], "confidence": [0.5, 0.5], "correct": [True, None]},
    )
    assert [len(part["time"]) for part in read(path, 5)] == [1, 0, 0, 0, 1]


def test_survey_counts_rows(tmp_path: Path):
    columns = log(5_000)
    with Log(write(tmp_path / "a.parquet", columns, row_group_size=700)) as opened:
        survey = opened.survey()
    delays = [
        b - a for a, b in zip(columns["time"], columns["label_time"].to_pylist(), strict=True) if b
    ]
    assert (survey.rows, survey.labelled) == (5_000, len(delays))
    assert survey.start == columns["time"][0]
    assert survey.last == columns["time"][-1]
    assert survey.end == max(*columns["time"], *(t for t in columns["label_time"].to_pylist() if t))
    for share in (0.5, 0.99, 1.0):
        exact = np.quantile(delays, share, method="inverted_cdf")
        assert exact <= survey.delay_quantile(share) <= 1.011 * exact


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("time", pa.array([1, 2, 3], pa.timestamp("ms", "UTC"))),
        ("time", pa.array([1_000_001, 2_000_001, 3_000_001], pa.timestamp("ns"))),
        ("time", pa.array([1, 2, 3], pa.int64())),
        ("correct", pa.array([1, 0, None], pa.int8())),
        ("correct", pa.array([1.0, 0.0, float("nan")])),
        ("correct", pa.nulls(3)),
        ("label_time", pa.nulls(3)),
        ("segment", pa.array(["a", None, "b"]).dictionary_encode()),
        ("segment", pa.array([1, 2, None])),
        ("confidence", pa.array([0, 1, 1], pa.int32())),
    ],
)
def test_columns_may_have_several_types(tmp_path: Path, name: str, values: pa.Array):
    columns = {"time": [1.0, 2.0, 3.0], "confidence": [0.5] * 3, "correct": [True, False, None]}
    parts = read(write(tmp_path / "a.parquet", {**columns, name: values}), 1)
    (rows,) = parts
    assert len(rows["time"]) == 3
    if name == "correct" and values.null_count < 3:
        np.testing.assert_array_equal(rows["correct"], [1, 0, np.nan])
    if name == "segment":
        assert rows["segment"][2] in ("b", "")
    if name == "time":
        scale = 1e-3 if pa.types.is_timestamp(values.type) else 1
        np.testing.assert_allclose(rows["time"], scale * np.arange(1, 4), rtol=1e-5)


def small(**changes: Any) -> dict[str, Any]:
    columns = {
        "time": [START, START + 1, START + 2],
        "confidence": [0.9, 0.8, 0.7],
        "correct": [True, None, False],
        "label_time": [START + 5, None, START + 9],
    }
    return {name: column for name, column in {**columns, **changes}.items() if column is not None}


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        (small(time=None), "time"),
        (small(confidence=None), "confidence"),
        (small(correct=None), "correct"),
        (small(time=["a", "b", "c"]), "time[0]"),
        (small(time=["2026-01-31", "2026-01-32", "2026-02-01"]), "time[1]"),
        (small(time=["2026-01-31T10:00Z", "2026-01-31T10:00", "2026-02-01"]), "time[1]"),
        (small(time=[0, START * 1e3, START * 1e3]), "time[1]"),
        (small(time=[START, None, START]), "time[1]"),
        (small(time=[START, float("inf"), START]), "time[1]"),
        (small(time=[START, START, 1_700_000_000_000]), "time[2]"),  # milliseconds
        (small(confidence=[0.9, 0.8, 1.1]), "confidence[2]"),
        (small(confidence=[0.9, None, 0.7]), "confidence[1]"),
        (small(confidence=[[0.9], [0.8], [0.7]]), "confidence"),
        (small(correct=[2, None, 0]), "correct[0]"),
        (small(correct=["yes", None, "no"]), "correct[0]"),
        (small(label_time=[START + 5, START + 5, START + 9]), "label_time[1]"),
        (small(label_time=[START + 5, None, START - 1_000]), "label_time[2]"),
        (small(label_time=[float("inf"), None, START]), "label_time[0]"),
        (small(segment=[[1], [2], [3]]), "segment"),
        (small(group=[0.5, 1.5, 2.5]), "group"),
        (
            {name: [] for name in ("time", "confidence")} | {"correct": pa.array([], pa.bool_())},
            "log",
        ),
    ],
)
def test_invalid_rows_are_refused_with_their_position(tmp_path: Path, columns, field: str):
    if field == "log":
        columns = {
            **columns,
            "time": pa.array([], pa.float64()),
            "confidence": pa.array([], pa.float64()),
        }
    path = write(tmp_path / "a.parquet", columns, row_group_size=2)
    with pytest.raises(InputError) as excinfo, Log(path) as opened:
        opened.survey()
    assert excinfo.value.field == field


def test_log_may_have_all_segments_of_a_model_and_rows_without_one(tmp_path: Path):
    names = [*map(str, range(MAX_SEGMENTS)), None]
    columns = {**log(len(names)), "segment": names}
    with Log(write(tmp_path / "a.parquet", columns)) as opened:
        assert len(opened.survey().segments) == MAX_SEGMENTS + 1


def test_too_many_segments_are_refused(tmp_path: Path):
    columns = {**log(200), "segment": [str(k) for k in range(200)]}
    with (
        Log(write(tmp_path / "a.parquet", columns)) as opened,
        pytest.raises(InputError) as excinfo,
    ):
        opened.survey()
    assert excinfo.value.field == "segment"


def test_duplicate_columns_are_refused(tmp_path: Path):
    table = pa.table(
        [[1.0], [0.5], [True], [0.4]], names=["time", "confidence", "correct", "confidence"]
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError) as excinfo:
        Log(tmp_path / "a.parquet")
    assert excinfo.value.field == "confidence"


def test_invalid_log_is_refused(tmp_path: Path):
    path = write(tmp_path / "a.parquet", log(2_000))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    for name, text in (("b.parquet", b""), ("c.parquet", b"PAR1" * 10), ("d.csv", b"time\n1\n")):
        (tmp_path / name).write_bytes(text)
    for name in ("a.parquet", "b.parquet", "c.parquet", "d.csv", "missing.parquet", "."):
        with pytest.raises(InputError):
            Log(tmp_path / name)
    damaged = bytearray(content)
    damaged[200:2_000] = bytes(1_800)
    path.write_bytes(bytes(damaged))
    with pytest.raises(InputError), Log(path) as opened:
        opened.survey()


def test_file_with_false_sizes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As in uploads: before Arrow makes room for it."""
    (tmp_path / "a.parquet").write_bytes(claimed_columns(900_000))
    with pytest.raises(InputError, match="Exceeded size limit"):
        Log(tmp_path / "a.parquet")
    # Two kilobytes of runs, which are half a megabyte of numbers.
    columns = {name: pa.array([value] * 20_000) for name, value in _ROW.items()}
    path = write(tmp_path / "b.parquet", columns)
    Log(path).__exit__(None, None, None)
    monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 1 << 18)
    with pytest.raises(TooLargeError, match="a row group of"):
        Log(path)


_ROW = {"time": 1.0, "confidence": 0.5, "correct": True}


@pytest.mark.slow
def test_log_in_several_files_is_that_of_one(tmp_path: Path) -> None:
    """Files in any order; errors name the file and count its rows."""
    columns = log(3_000)
    single = write(tmp_path / "one.parquet", columns)
    folder = tmp_path / "parts" / "day=1"
    folder.mkdir(parents=True)
    for number, (start, end) in enumerate(((2_000, 3_000), (0, 700), (700, 2_000))):
        part = {name: values[start:end] for name, values in columns.items()}
        write(folder / f"{number}.parquet", part, row_group_size=300)
    (folder / "notes.csv").write_text("no log")
    (folder / "run.json").write_text("{}")
    options = ReplayOptions(cohort=86_400.0)
    assert replay(tmp_path / "parts", options).to_dict() == replay(single, options).to_dict()
    part = {name: values[:5] for name, values in columns.items()}
    part["confidence"] = np.where(np.arange(5) == 3, 2.0, part["confidence"])
    write(folder / "3.parquet", part)
    with pytest.raises(InputError, match=r"3\.parquet: confidence\[3\]: found 2"):
        replay(f"{tmp_path}/parts/**/*.parquet", options)
    write(folder / "3.parquet", columns | {"confidence": columns["confidence"].astype(np.float32)})
    with pytest.raises(InputError, match=r"3\.parquet: columns: found .*confidence float"):
        replay(tmp_path / "parts", options)


def test_files_without_rows_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    single = write(folder / "b.parquet", log(500))
    nulls = {name: pa.nulls(0) for name in ("time", "confidence", "correct")}
    write(folder / "a.parquet", nulls)
    assert replay(folder).to_dict() == replay(single).to_dict()
    write(single, nulls)
    with pytest.raises(InputError, match="log: found no rows in any file"):
        replay(folder)
