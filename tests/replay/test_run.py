"""Replays: states and their times, what is waited for, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recalib.errors import InputError
from recalib.replay import ReplayOptions, replay
from tests.replay.logs import START, log, write

_DAY = 86_400.0
#: Fewer cohorts than by default, which cost most of the time.
_LONG_COHORTS = ReplayOptions(cohort=_DAY / 2)


def states(result) -> list[str]:
    return [event.status.state for event in result.events]


@pytest.mark.slow
def test_drift_is_detected_soon_after_its_onset(tmp_path: Path):
    """Half-way, after 15 days; the time is a prediction's, and evidence grew from about then."""
    columns = log()
    result = replay(write(tmp_path / "a.parquet", columns))
    assert result.state == states(result)[-1] == "stale"
    assert "fresh" in states(result)
    stale = result.events[-1]
    assert START + 15 * _DAY < stale.time < START + 21 * _DAY
    assert stale.time in columns["time"]
    assert stale.status.onset == pytest.approx(START + 15 * _DAY, abs=2 * _DAY)
    assert [window["state"] for window in result.windows][-1] == "stale"
    assert result.rows == 12_000
    json.dumps(result.to_dict(), allow_nan=False)


def test_calibrated_log_ends_fresh(tmp_path: Path):
    result = replay(write(tmp_path / "a.parquet", log(drift=None)), _LONG_COHORTS)
    assert result.state == "fresh"
    assert "stale" not in states(result)


@pytest.mark.slow
def test_row_order_does_not_matter(tmp_path: Path):
    table = pa.table(log(3_000))
    columns = dict(zip(table.column_names, table.columns, strict=True))
    result = replay(write(tmp_path / "one.parquet", columns))
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    pa.parquet.write_table(shuffled, tmp_path / "other.parquet", row_group_size=250)
    assert replay(tmp_path / "other.parquet").to_dict() == result.to_dict()


def test_order_of_rows_of_one_time_does_not_matter(tmp_path: Path):
    """Of a log with dates, sorted by outcome within a day: it is calibrated, and never stale."""
    table = pa.table(log(6_000, drift=None, labelled=1.0)).drop_columns("label_time")
    day = pa.array(np.floor(np.array(table["time"]) / _DAY) * _DAY)
    table = table.set_column(0, "time", day).sort_by(
        [("time", "ascending"), ("correct", "ascending")]
    )
    results = []
    for order in (np.arange(6_000), np.arange(6_000)[::-1]):
        pa.parquet.write_table(table.take(order), tmp_path / "a.parquet")
        results.append(replay(tmp_path / "a.parquet", ReplayOptions(cohort=_DAY)))
    assert "stale" not in states(results[0])
    assert results[0].to_dict() == results[1].to_dict()


def test_rows_of_a_group_count_once(tmp_path: Path):
    """A request in three copies, with its group, is the same evidence as the request."""
    columns = log(2_000, labelled=1.0)
    options = ReplayOptions(cohort=_DAY)
    single = replay(write(tmp_path / "a.parquet", columns), options)
    table = pa.table({**columns, "group": [f"request {row}" for row in range(2_000)]})
    pa.parquet.write_table(pa.concat_tables([table] * 3), tmp_path / "b.parquet")
    grouped = replay(tmp_path / "b.parquet", options)
    pa.parquet.write_table(
        pa.concat_tables([table.drop_columns("group")] * 3), tmp_path / "b.parquet"
    )
    copied = replay(tmp_path / "b.parquet", options)
    log_evidence, size, copies = (
        [result.windows[-1][name] for result in (single, grouped, copied)]
        for name in ("log_evidence", "units", "n")
    )
    assert log_evidence[1] == pytest.approx(log_evidence[0], abs=0.1)
    assert log_evidence[2] > log_evidence[0] + 10
    assert size[0] == size[1]
    assert copies[1] == 3 * copies[0]


@pytest.mark.slow
def test_early_labels_of_errors_do_not_bias_cohorts(tmp_path: Path):
    """Labels of errors come at once, all others a day later; in order of arrival, that is drift.

    What comes within the horizon is used, later labels are counted, and young cohorts left out.
    """
    columns = log(drift=None, labelled=1.0)
    right = np.array(columns["correct"].to_pylist())
    columns["label_time"] = columns["time"] + np.where(right, _DAY, 60.0)
    path = write(tmp_path / "a.parquet", columns)
    result = replay(path, _LONG_COHORTS)
    assert result.maturity == pytest.approx(_DAY, rel=0.02)
    assert result.late == 0
    assert result.state == "fresh"
    young = result.windows[-1]["time"]
    assert young <= max(columns["label_time"]) - result.maturity < young + result.cohort
    assert result.immature == np.count_nonzero(columns["time"] >= young)
    impatient = replay(path, ReplayOptions(maturity=3_600.0, cohort=_DAY / 2))
    assert impatient.maturity_from == "given"
    assert impatient.late == pytest.approx(np.count_nonzero(right), rel=0.05)
    # Labels must not be awaited for errors alone: that would select by outcome.
    assert impatient.state == "stale"
    assert impatient.windows[-1]["selective"]
    assert impatient.windows[-1]["may_be_selection"]
    assert impatient.events[-1].to_dict()["may_be_selection"]


@pytest.mark.slow
def test_drifting_segment_is_named(tmp_path: Path):
    first, second = log(10_000, drift=None), log(4_000, drift=0.3, seed=1)
    joined = pa.concat_tables([pa.table(first), pa.table(second)])
    segments = pa.array(["web"] * 10_000 + ["app"] * 4_000)
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(joined.append_column("segment", segments), path)
    result = replay(path, _LONG_COHORTS)
    last = result.events[-1]
    assert (last.status.state, last.status.segment) == ("stale", "app")
    assert "segment 'app'" in last.status.reason
    assert START + 9 * _DAY < last.time < START + 20 * _DAY
    assert last.to_dict()["segment"] == "app"


def test_minimal_log_is_replayed(tmp_path: Path):
    """The least that a log may hold; nothing is made up."""
    columns = {"time": [5.0], "confidence": [0.9], "correct": pa.nulls(1)}
    single = replay(write(tmp_path / "one.parquet", columns))
    assert single.state == "unverified"
    assert (single.rows, single.labelled, single.maturity) == (1, 0, 0.0)
    assert len(single.windows) == 1
    same = {"time": [5.0] * 900, "confidence": [0.9] * 900, "correct": ([True] * 9 + [False]) * 90}
    result = replay(write(tmp_path / "same.parquet", same))
    assert result.windows[-1]["n"] == 900
    assert result.state == "fresh"


def test_log_without_matured_labels_has_no_events(tmp_path: Path):
    result = replay(write(tmp_path / "a.parquet", log(500)), ReplayOptions(maturity=90 * _DAY))
    assert (result.state, result.events, result.windows) == ("unverified", [], [])
    assert result.immature == 500


def test_cohort_length_is_configurable(tmp_path: Path):
    path = write(tmp_path / "a.parquet", log(2_000))
    result = replay(path, ReplayOptions(cohort=_DAY, maturity=0.0))
    assert (result.cohort, len(result.windows)) == (_DAY, 30)
    assert result.late == result.labelled  # since no label comes at once
    with pytest.raises(InputError) as excinfo:
        replay(path, ReplayOptions(cohort=1.0))
    assert excinfo.value.field == "options.cohort"


@pytest.mark.parametrize("options", [{"maturity": -1.0}, {"maturity": np.nan}, {"cohort": 0.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(InputError):
        ReplayOptions(**options)
