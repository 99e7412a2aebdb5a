"""Search for undeclared segments: who is found, how often by chance, and invalid columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy

from recalib.errors import InputError
from recalib.replay import ReplayOptions, SegmentSearch, replay
from recalib.replay.segment_search import accuracy_interval
from tests.replay.logs import log, write


def search(path: Path, *columns: str, **options) -> SegmentSearch:
    result = replay(path, ReplayOptions(cohort=5 * 86_400.0, find_segments=columns, **options))
    assert result.segment_search is not None
    json.dumps(result.to_dict(), allow_nan=False)
    return result.segment_search


def with_columns(rows: int = 6_000, wrong: float = 0.0, seed: int = 0) -> dict:
    """Return a log in which 5% of the rows, of region "r7" and with load above 0.95, are wrong."""
    columns = log(rows, drift=None, seed=seed)
    rng = np.random.default_rng([seed, 1])
    load = rng.random(rows)
    region = rng.integers(0, 7, rows)
    region[load > 0.95] = 7
    correct = np.array(columns["correct"].to_pylist(), object)
    flips = (load > 0.95) & (rng.random(rows) < wrong) & (correct == 1)
    correct[flips] = False
    columns["correct"] = pa.array(correct.tolist(), pa.bool_())
    columns["region"] = [f"r{number}" for number in region]
    columns["load"] = load
    columns["model_year"] = rng.integers(2010, 2020, rows)
    columns["user"] = [f"u{number}" for number in range(rows)]
    return columns


def test_wrong_segment_is_named_with_interval_and_count(tmp_path: Path):
    path = write(tmp_path / "a.parquet", with_columns(wrong=0.35), row_group_size=1_000)
    result = search(path, "model_year", "region")
    worst = result.worst
    assert worst is not None
    assert (worst.column, worst.value) == ("region", "r7")
    assert worst.exceeds_tolerance
    assert result.exceeding == 1
    assert result.tried == 8 + 10
    assert worst.low < worst.gap < worst.high < -0.1
    assert worst.gap == pytest.approx(worst.accuracy - worst.confidence)
    assert 200 < worst.labels < worst.predictions == pytest.approx(300, abs=60)
    assert result.to_dict()["worst"]["value"] == "r7"


def test_ranges_of_numbers_are_segments(tmp_path: Path):
    result = search(write(tmp_path / "a.parquet", with_columns(wrong=0.35)), "load", "time")
    assert result.tried == 20 + 20
    assert result.worst is not None
    assert result.worst.column == "load"
    assert result.worst.value.endswith("or more")
    assert float(result.worst.value.split()[0]) == pytest.approx(0.95, abs=0.01)


def test_log_without_errors_has_no_segment(tmp_path: Path):
    result = search(write(tmp_path / "a.parquet", with_columns()), "region", "load", "model_year")
    assert result.exceeding == 0
    assert result.worst is not None
    assert result.worst.certain_gap < result.tolerance
    assert result.gap == pytest.approx(0, abs=0.02)


def test_sums_agree_with_a_direct_calculation(tmp_path: Path):
    """Only labels that came in time of predictions that have matured count."""
    columns = with_columns(3_000)
    result = search(write(tmp_path / "a.parquet", columns), "region", maturity=3_600.0)
    delay = np.array(columns["label_time"].to_pylist(), np.float64) - columns["time"]
    end = np.nanmax(columns["time"] + np.nan_to_num(delay))
    matured = columns["time"] + 3_600 <= end
    for segment in result.segments:
        member = matured & (np.array(columns["region"]) == segment.value)
        used = member & (delay <= 3_600)
        assert segment.predictions == member.sum()
        assert segment.labels == used.sum()
        correct = np.array(columns["correct"].to_pylist())[used].astype(float)
        assert segment.accuracy == pytest.approx(correct.mean())
        assert segment.confidence == pytest.approx(columns["confidence"][used].mean())
        exact = scipy.stats.binomtest(int(correct.sum()), len(correct))
        interval = exact.proportion_ci(1 - 0.05 / result.tried, "exact")
        assert segment.low == pytest.approx(interval.low - segment.confidence)
        assert segment.high == pytest.approx(interval.high - segment.confidence)


def test_interval_agrees_with_scipy_and_covers_mixed_accuracies():
    """Clopper-Pearson, and its coverage where the rows differ in accuracy (Hoeffding 1956)."""
    correct, labels = np.array([0, 3, 20, 19]), np.array([20, 10, 20, 40])
    low, high = accuracy_interval(correct, labels, 0.01)
    for k, n, *ends in zip(correct, labels, low, high, strict=True):
        interval = scipy.stats.binomtest(int(k), int(n)).proportion_ci(0.99, "exact")
        assert ends == pytest.approx([interval.low, interval.high])
    rng = np.random.default_rng(0)
    for accuracies in (np.full(30, 0.9), np.repeat([0.05, 0.99], 15), rng.random(30)):
        sums = (rng.random((20_000, 30)) < accuracies).sum(axis=1)
        low, high = accuracy_interval(sums, np.full(20_000, 30), 0.05)
        misses = np.mean((accuracies.mean() < low) | (accuracies.mean() > high))
        assert misses <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 20_000)


def test_error_within_the_tolerance_is_no_finding(tmp_path: Path):
    """Half of the rows are 3 points off, which 20,000 labels show."""
    rows = 20_000
    rng = np.random.default_rng(1)
    off = rng.random(rows) < 0.5
    columns = {
        "time": np.arange(rows, dtype=float),
        "confidence": np.full(rows, 0.9),
        "correct": rng.random(rows) < np.where(off, 0.87, 0.9),
        "off": off,
    }
    path = write(tmp_path / "a.parquet", columns)
    strict, usual = (search(path, "off", tolerance=tolerance) for tolerance in (0.0, 0.03))
    assert strict.worst is not None
    assert (strict.worst.value, strict.exceeding, usual.exceeding) == ("true", 1, 0)


def test_every_type_of_column_makes_groups(tmp_path: Path):
    columns = with_columns(3_000)
    rng = np.random.default_rng(3)
    day = datetime(2024, 5, 1, tzinfo=UTC)
    days = [day + timedelta(days=int(number)) for number in rng.integers(0, 100, 3_000)]
    columns |= {
        "flag": pa.array(rng.random(3_000) < 0.5),
        "at": pa.array(days, pa.timestamp("us", tz="UTC")),
        "date": pa.array([moment.date() for moment in days]),
        "count": pa.array(rng.integers(0, 10_000, 3_000)),
        "kind": pa.array(columns["region"]).dictionary_encode(),
        "gaps": pa.array([None if number % 2 else 1.5 for number in range(3_000)], pa.float64()),
        "constant": pa.array(np.full(3_000, 2.0)),
    }
    path = write(tmp_path / "a.parquet", columns)
    names = {
        name: {segment.value for segment in search(path, name).segments}
        for name in ("flag", "at", "date", "count", "kind", "gaps", "constant")
    }
    assert names["flag"] == {"true", "false"}
    assert any(value.startswith("below 2024-05-0") for value in names["at"])
    assert any(value.startswith("2024-0") for value in names["date"])
    assert len(names["count"]) == 20
    assert names["kind"] == {f"r{number}" for number in range(8)}
    assert "null" in names["gaps"]
    assert len(names["gaps"]) == 2
    assert names["constant"] == {"any value"}


def test_rare_values_are_joined(tmp_path: Path):
    columns = with_columns(6_000)
    values = np.random.default_rng(0).zipf(1.2, 6_000) % 5_000
    columns["shop"] = [f"s{value}" for value in values]
    result = search(write(tmp_path / "a.parquet", columns), "shop")
    assert result.tried < 201
    assert result.too_small > 0
    assert "other values" in {segment.value for segment in result.segments} or result.tried > 20


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("shape",), "no column 'shape'"),
        (("correct",), "known only with the label"),
        (("region", "region"), "named twice"),
        (("nested",), "a column of type list"),
    ],
)
def test_unsuitable_columns_are_rejected(tmp_path: Path, columns: tuple[str, ...], message: str):
    table = with_columns(100)
    table["nested"] = [[1.0]] * 100
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(InputError, match=message):
        search(path, *columns)


def test_column_of_ids_is_rejected(tmp_path: Path):
    path = write(tmp_path / "a.parquet", with_columns(10_500))
    with pytest.raises(InputError, match=r"user.*like an id"):
        search(path, "user")
