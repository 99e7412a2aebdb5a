"""Waiting for a job: completion, timeout and interruption."""

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

from recalib.client import AsyncClient, JobFailedError, ServerTimeoutError, UnreachableError
from recalib.client.jobs import _pauses
from tests.client.either import Either
from tests.client.flaky import Act, Flaky, resets, says

Clients = Callable[..., Either]

#: Message when the client stops waiting for a job.
NOTE = "Job j still runs; cancel it by client.cancel_job('j')."


def job(state: str, fraction: float | None = None, **more: Any) -> Act:
    """Respond with a job in `state`, at the fraction `fraction`."""
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


def test_wait_returns_a_succeeded_job(client_of: Clients, flaky: Flaky) -> None:
    """Progress is reported; a broken connection does not end the wait."""
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
def test_wait_raises_for_failed_and_cancelled_jobs(
    client_of: Clients, flaky: Flaky, state: str, message: str
) -> None:
    flaky.will(job("running"), job(state, error="no data" if state == "failed" else None))
    with pytest.raises(JobFailedError, match=message) as excinfo:
        client_of(flaky.url).wait("j", progress=False)
    assert excinfo.value.job.state == state
    assert not hasattr(excinfo.value, "__notes__")


def test_wait_stops_at_the_timeout(client_of: Clients, flaky: Flaky) -> None:
    """The last poll is at the timeout."""
    flaky.will(job("running"))
    started = time.monotonic()
    with pytest.raises(ServerTimeoutError, match=r"^job j is still running\n") as excinfo:
        client_of(flaky.url).wait("j", timeout=0.3, progress=False)
    assert time.monotonic() - started >= 0.3
    assert excinfo.value.__notes__ == [NOTE]
    flaky.will(job("succeeded"))
    assert client_of(flaky.url).wait("j", timeout=0, progress=False).finished


def test_unreachable_server_while_waiting(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(job("running"), resets)
    with pytest.raises(UnreachableError) as excinfo:
        client_of(flaky.url).wait("j", progress=False)
    assert excinfo.value.__notes__ == [NOTE]


def test_poll_interval_grows_with_job_length() -> None:
    """The first poll is within a second; long waits poll at most every two seconds."""
    pauses = _pauses()
    looks, waited = 0, 0.0
    while waited < 3600:
        waited += next(pauses)
        looks += 1
        assert waited > 1 or looks < 10
    assert looks < 1850


def test_cancelled_task_leaves_the_job_running(flaky: Flaky) -> None:
    """The job is not cancelled, and the error says so."""
    flaky.will(job("running"))

    async def main() -> None:
        async with AsyncClient(flaky.url) as client:
            task = asyncio.create_task(client.wait("j", progress=False))
            while len(flaky.received) < 3:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as excinfo:
                await task
            assert excinfo.value.__notes__ == [NOTE]
            # The client still works.
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
def test_keyboard_interrupt_explains_how_to_cancel_the_job(kind: str, flaky: Flaky) -> None:
    """The program ends; its message ends with how to cancel the job."""
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
