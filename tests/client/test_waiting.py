"""Waiting for a job: until its end, no longer than one wants to, and whatever interrupts it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest

from recalib.client import AsyncClient, JobFailedError, TimedOutError, UnreachableError
from recalib.client.jobs import _pauses
from tests.client.either import Either
from tests.client.flaky import Act, Flaky, resets, says

Clients = Callable[..., Either]

#: What is said whenever a job is left to itself.
NOTE = "Job j goes on; cancel it by client.cancel_job('j')."


def job(state: str, fraction: float | None = None, **more: Any) -> Act:
    """Response with a job in a state, at a fraction of its way."""
    progress = None if fraction is None else {"fraction": fraction, "message": f"{fraction:.0%}"}
    actual = {
        "id": "j",
        "kind": "fit",
        "state": state,
        "model": "m",
        "progress": progress,
        "result": None,
        "error": None,
        "attempts": 1,
        "created_at": "2026-01-01T00:00:00+00:00",
        "started_at": None,
        "finished_at": None,
    }
    return says(200, {**actual, **more})


def test_until_it_has_succeeded(client_of: Clients, flaky: Flaky) -> None:
    """Whoever wants to hears how far it is; a connection that breaks does not matter."""
    acts = [job("queued"), resets, job("running", 0.5), job("running", 0.75), job("succeeded")]
    flaky.will(*acts)
    reports: list[tuple[float, str]] = []
    result = client_of(flaky.url).wait("j", progress=lambda *report: reports.append(report))
    assert (result.id, result.state) == ("j", "succeeded")
    assert reports == [(0, "queued"), (0.5, "50%"), (0.75, "75%"), (1, "succeeded")]
    assert [(request.method, request.path) for request in flaky.received] == [
        ("GET", "/v1/jobs/j")
    ] * 5


@pytest.mark.parametrize(
    ("state", "message"), [("failed", "job j failed: no data"), ("cancelled", "job j cancelled$")]
)
def test_until_it_has_not(client_of: Clients, flaky: Flaky, state: str, message: str) -> None:
    flaky.will(job("running"), job(state, error="no data" if state == "failed" else None))
    with pytest.raises(JobFailedError, match=message) as caught:
        client_of(flaky.url).wait("j", progress=False)
    assert caught.value.job.state == state
    assert not hasattr(caught.value, "__notes__")


def test_no_longer_than_one_wants_to(client_of: Clients, flaky: Flaky) -> None:
    """The last look is when the time is over."""
    flaky.will(job("running"))
    started = time.monotonic()
    with pytest.raises(TimedOutError, match=r"^job j is still running\n") as caught:
        client_of(flaky.url).wait("j", timeout=0.3, progress=False)
    assert time.monotonic() - started >= 0.3
    assert caught.value.__notes__ == [NOTE]
    flaky.will(job("succeeded"))
    assert client_of(flaky.url).wait("j", timeout=0, progress=False).finished


def test_a_server_that_goes_away(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(job("running"), resets)
    with pytest.raises(UnreachableError) as caught:
        client_of(flaky.url).wait("j", progress=False)
    assert caught.value.__notes__ == [NOTE]


def test_looks_are_few_where_jobs_are_long() -> None:
    """Within a second at first; in an hour, no more than every two seconds."""
    pauses = _pauses()
    looks, waited = 0, 0.0
    while waited < 3600:
        waited += next(pauses)
        looks += 1
        assert waited > 1 or looks < 10
    assert looks < 1850


def test_a_task_that_is_cancelled(flaky: Flaky) -> None:
    """The job is not, and the error says so."""
    flaky.will(job("running"))

    async def main() -> None:
        async with AsyncClient(flaky.url) as client:
            task = asyncio.create_task(client.wait("j", progress=False))
            while len(flaky.received) < 3:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.__notes__ == [NOTE]
            # The client is still good.
            assert (await client.get_job("j")).state == "running"

    asyncio.run(main())
    assert {request.method for request in flaky.received} == {"GET"}


_SCRIPT = """
    import asyncio, sys
    from recalib.client import AsyncClient, Client

    url, kind = sys.argv[1:]
    async def awaiting():
        async with AsyncClient(url) as client:
            await client.wait("j")
    if kind == "blocking":
        Client(url).wait("j")
    else:
        asyncio.run(awaiting())
"""


@pytest.mark.slow
def test_control_c(kind: str, flaky: Flaky) -> None:
    """It ends the program, with how to end the job at the end of what it says."""
    flaky.will(job("running"))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_SCRIPT), flaky.url, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(flaky.received) < 3:
        assert process.poll() is None, process.stderr
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert out == ""
    assert NOTE in err
    assert "KeyboardInterrupt" in err
    assert {request.method for request in flaky.received} == {"GET"}
