"""The readers of uploads: callers have shares, and no connection waits for a reader."""

from __future__ import annotations

import ast
import asyncio
import base64
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import service
from recalib.core.access import Principal
from recalib.errors import LimitedError
from service.access.authenticator import set_principal
from service.datasets.survey import survey_url
from service.reader_pool import ReaderPool
from service.upload_checks import count_log_numbers, count_numbers
from service.uploads import QUICK_NUMBERS
from tests.files.examples import example, write_npz
from tests.service.conftest import NPZ, Service, npz
from tests.service.test_replays import PARQUET, log_of

LOGITS, LABELS = example()
_SECONDS = 60.0
#: Arguments of `wait` that keep a child busy for a minute, like an endless file.
_ENDLESS: dict[str, Any] = {"object_list": [], "timeout": 60.0}


@pytest.fixture
def pool() -> Iterator[ReaderPool]:
    pool = ReaderPool(max_calls=4)
    yield pool
    pool.close()


def _survey(path: Path) -> dict[str, Any]:
    path.write_bytes(write_npz(LOGITS, LABELS))
    options = {"format": "npz", "input": "logits", "classes": 4, "seconds": _SECONDS}
    return {"function": survey_url, "url": path.as_uri(), **options}


async def _run_as(name: str, pool: ReaderPool, **call: Any) -> Any:
    set_principal(Principal(name, frozenset({"fit"})))
    return await pool.run(**call)


@pytest.mark.slow
def test_slow_files_leave_the_processor_to_others(pool: ReaderPool) -> None:
    async def priorities() -> list[int]:
        call = {"function": os.getpriority, "seconds": _SECONDS, "which": os.PRIO_PROCESS, "who": 0}
        return [await pool.run(**call, is_slow=is_slow) for is_slow in (False, True)]

    quick, slow = asyncio.run(priorities())
    assert slow > quick == os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.slow
def test_neither_many_nor_slow_files_of_callers_delay_another(
    pool: ReaderPool, tmp_path: Path
) -> None:
    """One caller has many endless files, two others have slow ones that never end."""

    async def share() -> None:
        endless = {"function": wait, "seconds": _SECONDS, **_ENDLESS}
        calls = [_run_as("alpha", pool, **endless) for _ in range(4)]
        calls += [_run_as(name, pool, is_slow=True, **endless) for name in ("gamma", "delta")]
        tasks = [asyncio.create_task(call) for call in calls]
        beta = asyncio.create_task(_run_as("beta", pool, **_survey(tmp_path / "file")))
        assert (await asyncio.wait_for(beta, _SECONDS / 2))["rows"] == 40
        with pytest.raises(LimitedError, match="4 files of 'alpha'"):
            await asyncio.create_task(_run_as("alpha", pool, **endless))
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.CancelledError}
        assert pool.calls == 0

    asyncio.run(share())


@pytest.mark.slow
def test_cancelled_upload_frees_its_child(pool: ReaderPool, tmp_path: Path) -> None:
    """A server that stops does not wait for a long file."""

    async def cancel() -> None:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.run(wait, seconds=_SECONDS, **_ENDLESS), 0.3)
        assert (await pool.run(**_survey(tmp_path / "file")))["rows"] == 40
        assert time.monotonic() - started < _SECONDS / 2

    asyncio.run(cancel())


@pytest.mark.slow
def test_upload_that_is_cancelled_after_its_end_kills_no_other(
    pool: ReaderPool, tmp_path: Path
) -> None:
    """Its result is there, but the event loop has not seen it when the client leaves."""

    async def cancel() -> None:
        call = _survey(tmp_path / "file")
        ended = asyncio.create_task(pool.run(**call))
        await asyncio.sleep(0)
        while not pool.pids or pool._quick._idle.qsize() < 2:
            time.sleep(0.01)
        pids = pool.pids
        ended.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended
        assert await pool.run(**call)
        assert pool.pids == pids

    asyncio.run(cancel())


def test_header_of_a_small_file_says_that_it_is_slow_to_read(tmp_path: Path) -> None:
    """Run lengths: a few kilobytes unpack to millions of numbers."""
    rows = 1_500_000
    table = pa.table({"c0": np.zeros(rows), "c1": np.zeros(rows), "labels": np.zeros(rows, int)})
    pq.write_table(table, tmp_path / "bomb", row_group_size=rows)
    assert (tmp_path / "bomb").stat().st_size < 100_000
    url = (tmp_path / "bomb").as_uri()
    assert count_numbers(url, "parquet", "logits") == 2 * rows > QUICK_NUMBERS
    assert count_log_numbers(url) == 3 * rows
    (tmp_path / "file").write_bytes(write_npz(LOGITS, LABELS))
    assert count_numbers((tmp_path / "file").as_uri(), "npz", "logits") == LOGITS.size
    (tmp_path / "csv").write_text("logit_0,logit_1,label\n0,1,1\n")
    assert count_numbers((tmp_path / "csv").as_uri(), "csv", "logits") == 28


def test_no_connection_is_held_while_a_file_is_read(
    ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    run = ReaderPool.run

    async def measure(pool: ReaderPool, function: Any, **options: Any) -> Any:
        # The connections of this process: the test itself has none.
        held.append(ready.client.app.state.recalib.registry._engine.pool.checkedout())  # type: ignore[attr-defined]
        return await run(pool, function, **options)

    monkeypatch.setattr(ReaderPool, "run", measure)
    ready.fitted()
    path, client = "/v1/models/digits", ready.client
    parameters = client.get(f"{path}/calibrators/1/parameters").content
    logits, labels = np.zeros((2, 4)), np.arange(2)
    publication = {"parameters": base64.b64encode(parameters).decode()}
    answers = [
        ready.upload(npz(logits, labels), "other"),
        client.post(f"{path}/calibrators", json=publication),
        client.post(f"{path}/batches", content=npz(logits, labels), headers=NPZ),
        client.post(f"{path}/monitoring/replays", content=log_of(hours=48), headers=PARQUET),
    ]
    assert [answer.status_code for answer in answers] == [201, 202, 202, 202]
    assert held == [0] * 7


def test_nothing_is_awaited_in_a_transaction() -> None:
    """Whatever is awaited there, the connection is missing to others meanwhile."""
    places = []
    for path in Path(service.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.With) and any(map(_opens_transaction, node.items)):
                awaited = [each for each in ast.walk(node) if isinstance(each, ast.Await)]
                places += [f"{path.name}:{each.lineno}" for each in awaited]
    assert places == []


def _opens_transaction(item: ast.withitem) -> bool:
    call = item.context_expr
    names = ("reading", "transaction", "storing", "storing_all")
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in names
    )
