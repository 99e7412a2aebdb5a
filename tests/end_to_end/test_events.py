"""Streams of events for browsers, from two server processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx2
import pytest

from recalib.registry import Registry
from tests.end_to_end.programs import Programs, until


def record(programs: Programs, type: str, model: str) -> None:
    """Write an event to the registry of a server that runs."""
    with _registry(programs) as registry, registry.transaction() as tx:
        tx.events.record(type, model, {})


@contextmanager
def _registry(programs: Programs) -> Iterator[Registry]:
    registry = Registry(f"sqlite:///{programs.home / 'recalib.db'}", "memory://")
    yield registry
    registry.close()


@pytest.mark.slow
def test_browser_stream_has_ids_and_a_limit_and_ends_with_the_server(programs: Programs) -> None:
    """Two server processes send the same events; a stop does not wait for streams."""
    limits = {"max_event_streams": 2, "refresh_seconds": 0.05}
    with programs.serve("--workers", 2, **limits) as server:
        url = f"{server.url}/v1/events/stream"
        timeout = httpx2.Timeout(60)
        with httpx2.Client(timeout=timeout) as http:
            # Connections go to either process, so more than each accepts.
            opened: list[Any] = []
            for _ in range(12):
                response = http.send(http.build_request("GET", url), stream=True)
                opened.append(response)
            statuses = sorted(response.status_code for response in opened)
            assert statuses[0] == 200
            assert statuses[-1] == 429
            assert statuses.count(200) <= 4
            streams = [response for response in opened if response.status_code == 200]
            lines = [response.iter_lines() for response in streams]
            heads = [list(islice(of_stream, 4)) for of_stream in lines]
            assert all(head[0] == ": heartbeat" and head[-1] == "" for head in heads)
            record(programs, "test.event", "digits")
            for of_stream in lines:
                data, id_, _ = islice(of_stream, 3)
                event = json.loads(data.removeprefix("data: "))
                assert event["type"] == "test.event"
                assert id_ == f"id: {event['id']}"
            again = {"Last-Event-ID": str(event["id"] - 1)}
            streams[0].close()

            def reopened() -> Any:
                response = http.send(http.build_request("GET", url, headers=again), stream=True)
                return response if response.status_code == 200 else response.close()

            of_stream = until(reopened, "a free place").iter_lines()
            assert next(of_stream).startswith("data: ")
            assert server.stop() == 0  # within the time for requests that are running
            for response in streams[1:]:
                response.close()


@pytest.mark.slow
def test_browser_that_was_away_for_too_long_gets_a_gap(programs: Programs) -> None:
    """It is an ordinary message, so that every handler of messages gets it."""
    with programs.serve(refresh_seconds=0.05) as server:
        for _ in range(3):
            record(programs, "test.old", "digits")
        with _registry(programs) as registry, registry.transaction() as tx:
            tx.events.purge(-10.0)
        record(programs, "test.new", "digits")
        url, last = f"{server.url}/v1/events/stream", {"Last-Event-ID": "1"}
        with httpx2.stream("GET", url, headers=last, timeout=60) as response:
            lines = [line for line in islice(response.iter_lines(), 6) if line]
        gap, event = (json.loads(line.removeprefix("data: ")) for line in lines[::2])
        assert (gap["type"], gap["data"]["first"], lines[1]) == ("gap", 4, "id: 3")
        assert (event["type"], lines[3]) == ("test.new", "id: 4")
