"""Replay of a log whose answers are adapted to label shift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recalib.errors import InputError
from recalib.replay import Replay, ReplayOptions
from recalib.replay import replay as replay_all
from recalib.shift import AdaptedStream
from tests.replay.logs import write
from tests.replay.test_class_shares import lists, log

_BEFORE, _NOW = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])


def replay(path: Path, **options: Any) -> Replay:
    return replay_all(path, ReplayOptions(cohort=1_000.0, **options))


def test_a_shift_that_makes_the_log_stale_is_adapted_to(tmp_path: Path) -> None:
    """The shares move half-way, after 8,000 rows, with all labels at once."""
    path = write(tmp_path / "a.parquet", log(_NOW))
    plain, adapted = replay(path), replay(path, adapt="label_shift")
    assert plain.state == "stale"
    assert plain.windows[-1]["ece"] > 2 * adapted.windows[-1]["ece"]
    found = adapted.adaptation
    assert found is not None
    np.testing.assert_allclose(found.before, _BEFORE, atol=0.02)
    np.testing.assert_allclose(found.states[-1].priors, _NOW, atol=0.03)
    assert found.weight > 0.99
    assert found.nll is not None
    assert found.nll_unadapted is not None
    assert found.nll < found.nll_unadapted - 0.02
    assert [state.number for state in found.states] == list(range(1, found.number + 1))
    assert found.states[0].time > 1.7e9 + 8_000


def test_without_a_shift_the_monitor_reads_the_log_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", log(_BEFORE))
    plain, adapted = replay(path), replay(path, adapt="label_shift")
    assert adapted.adaptation is not None
    assert (adapted.adaptation.number, adapted.adaptation.states) == (0, [])
    assert adapted.adaptation.sentence().endswith("no window shows a shift")
    assert adapted.windows == plain.windows


def test_without_labels_answers_stay_as_they_are(tmp_path: Path) -> None:
    columns = log(_NOW)
    columns["correct"] = columns["label"] = pa.nulls(len(columns["time"]), pa.int64())
    path = write(tmp_path / "a.parquet", columns)
    plain, adapted = replay(path), replay(path, adapt="label_shift")
    found = adapted.adaptation
    assert found is not None
    assert found.number > 0
    assert (found.weight, found.labels, found.nll) == (0.5, 0, None)
    assert adapted.windows == plain.windows


def test_labels_count_after_the_horizon() -> None:
    """The second half has its labels an hour later, so that the first hour is in shadow."""
    columns = log(_NOW, rows=16_000)
    p = np.stack(columns["probabilities"].to_pylist())[8_000:]
    time, label = columns["time"][8_000:], columns["label"][8_000:].astype(np.int64)
    stream = AdaptedStream(_BEFORE, horizon=3_600.0)
    answers = stream.answer(time, p, label, np.full(8_000, 3_000.0))
    changed = np.flatnonzero((answers != p).any(axis=1))
    first_state = np.searchsorted(time, stream.summary().states[0].time)
    assert first_state + 3_600 <= changed[0] <= first_state + 4_000
    late = AdaptedStream(_BEFORE, horizon=3_600.0)
    np.testing.assert_array_equal(late.answer(time, p, label, np.full(8_000, 3_601.0)), p)
    assert late.summary().labels == 0


def test_watched_classes_have_the_adapted_probabilities(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", log(_NOW))
    plain, adapted = (replay(path, classes=("all",), adapt=a) for a in ("none", "label_shift"))
    assert plain.classes is not None
    assert adapted.classes is not None
    assert adapted.classes.log_evidence < plain.classes.log_evidence - 10


def test_logs_that_have_no_class_shares_are_refused(tmp_path: Path) -> None:
    columns = log(_NOW, rows=2_000)
    del columns["label"]
    with pytest.raises(InputError, match="label"):
        replay(write(tmp_path / "a.parquet", columns), adapt="label_shift")
    sets = lists((np.random.default_rng(0).random((2_000, 3)) < 0.5).astype(np.int8))
    multilabel = {
        "time": columns["time"],
        "probabilities": columns["probabilities"],
        "labels": sets,
    }
    with pytest.raises(InputError, match="adapt"):
        replay(write(tmp_path / "b.parquet", multilabel), adapt="label_shift", task="multilabel")
