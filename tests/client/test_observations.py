"""Observations of external predictions, with a small request limit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from recalib.client import InvalidRequestError, ResourceConflictError, ResourceNotFoundError
from recalib.client.times import check_times
from recalib.errors import InputError
from tests.cli.running import LABELS, LOGITS
from tests.client.conftest import MAX_LABELS
from tests.client.either import Either, asyncio_is_slow
from tests.client.flaky import Flaky, says


@asyncio_is_slow
def test_each_observation_gets_its_own_outcome(client: Either, name: str) -> None:
    """Each row has its own outcome, in order, over several requests."""
    client.create_model(name, 4)
    client.upload_dataset(name, "val", LOGITS, LABELS, progress=False)
    rows = 2 * MAX_LABELS + 1
    logits, labels = LOGITS[:rows].copy(), LABELS[:rows].copy()
    times = time.time() - np.arange(rows)
    # Of another model: a server remembers for a moment that a model has no champion.
    client.create_model(f"{name}-new", 4)
    with pytest.raises(ResourceConflictError, match="champion"):
        client.add_observations(f"{name}-new", logits, labels, times)
    client.wait(client.fit(name, "val", promote=True), progress=False)
    assert client.add_observations(name, logits, labels, times).counts == {"accepted": rows}
    logits[1, (labels[1] + 1) % 4] = -np.inf
    times[-1] = 0
    result = client.add_observations(name, logits, labels, times, calibrator=1, segment="")
    statuses = ["duplicate", "accepted", *["duplicate"] * (rows - 3), "expired"]
    assert [item.status for item in result.items] == statuses
    with pytest.raises(ResourceNotFoundError):
        client.add_observations(name, logits, labels, times, calibrator=9)
    with pytest.raises(InvalidRequestError, match="classes"):
        client.add_observations(name, logits[:, :3], labels, times)


def test_invalid_observations_are_not_sent(client_of: Callable[..., Either], flaky: Flaky) -> None:
    """The client rejects unequal columns and invalid logits; a mask is sent as null."""
    client = client_of(flaky.url)
    logits = np.array([[0.0, -np.inf, 1.0]])
    for wrong in ({"labels": [0, 1]}, {"times": [1.0, 2.0]}, {"times": [[1.0]]}):
        with pytest.raises(InputError) as excinfo:
            client.add_observations("m", logits, **{"labels": [0], "times": [1.0], **wrong})
        assert excinfo.value.field == next(iter(wrong))
    with pytest.raises(InputError, match="NaN"):
        client.add_observations("m", logits * np.nan, [0], [1.0])
    assert flaky.received == []
    flaky.will(says(200, {"counts": {"accepted": 1}, "items": [{"status": "accepted"}]}))
    client.add_observations("m", logits, ["a"], [1.5], segment="eu")
    sent = json.loads(flaky.received[0].body)
    assert sent == {
        "logits": [[0.0, None, 1.0]], "labels": ["a"], "times": [1.5], "segment": "eu",
    }  # fmt: skip


_MOMENT = datetime(2026, 11, 27, 8, 0, 0, 500_000, tzinfo=UTC)
_SECONDS = 1795766400.5


@pytest.mark.parametrize(
    "times",
    [
        [_SECONDS, _SECONDS + 1],
        [_MOMENT, _MOMENT + timedelta(seconds=1)],
        [_MOMENT.replace(tzinfo=None), _MOMENT.astimezone(timezone(timedelta(hours=5)))],
        np.array(["2026-11-27T08:00:00.5", "2026-11-27T08:00:01.5"], "datetime64[ns]"),
        np.array(["2026-11-27T08:00:00.5", "2026-11-27T08:00:01.5"], "datetime64[ms]"),
        pd.date_range(_MOMENT, periods=2, freq="s").tz_convert("Europe/Vienna"),
        pd.Series(pd.date_range("2026-11-27T08:00:00.5", periods=2, freq="s")),
        pl.Series([_MOMENT, _MOMENT]),
        pa.array([_MOMENT, _MOMENT]),
    ],
)
def test_times_are_seconds_or_datetimes(times: Any) -> None:
    """Without a time zone they are in UTC."""
    assert check_times(times, 2)[0] == _SECONDS


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1.0, float("nan")], r"times\[1\]: found nan; accepted: finite"),
        ([_MOMENT, None], r"times\[1\]: found nan"),
        (pd.Series([pd.Timestamp(_MOMENT), pd.NaT]), r"times\[1\]: found nan"),
        (pd.Series([1, pd.NA], dtype="Int64"), r"times\[1\]: found nan"),
        (["2026-11-27", "2026-11-28"], "times: found dtype <U10; .* or datetimes"),
        ([_MOMENT, "2026-11-28"], r"times\[1\]: found '2026-11-28'"),
        ([1.0], "times: found 1 times; accepted: 2, one for each row"),
        ([[1.0], [2.0]], r"times: found shape \(2, 1\)"),
    ],
)
def test_other_times_are_refused(times: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_times(times, 2)


def test_label_matrix_is_sent_as_lists(client_of: Callable[..., Either], flaky: Flaky) -> None:
    client = client_of(flaky.url)
    accepted = {"counts": {"accepted": 2}, "items": [{"status": "accepted"}] * 2}
    flaky.will(says(200, accepted), says(200, accepted))
    matrix = np.array([[1, 0, 1], [0, 0, 0]])
    for labels in (matrix, [["a", 2], []]):
        client.add_observations("m", np.zeros((2, 3)), labels, [1.5, 2.5])
    sent = [json.loads(received.body)["labels"] for received in flaky.received]
    assert sent == [[[0, 2], []], [["a", 2], []]]
    with pytest.raises(InputError, match=r"labels\[0\]\[0\]: found 2"):
        client.add_observations("m", np.zeros((2, 3)), 2 * matrix, [1.5, 2.5])
