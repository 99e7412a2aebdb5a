"""Following events: those of a real server, interruptions, and `recalib api events`."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from recalib.client import InvalidRequestError, InvalidResponseError, UnreachableError
from recalib.client import events as client_events
from recalib.registry import Registry
from tests.client.either import Either
from tests.client.flaky import Act, Flaky, Received, problem, resets, says
from tests.end_to_end.programs import Programs, recalib_command

Clients = Callable[..., Either]


def described(number: int, type_: str = "job.failed") -> dict[str, Any]:
    at = "2026-03-04T05:06:07.000+00:00"
    data = {"job": "j", "kind": "fit", "error": "no \x1b[31mspace"}
    return {"id": number, "at": at, "type": type_, "model": "m", "data": data}


def after(request: Received) -> str:
    return parse_qs(urlsplit(request.path).query)["after"][0]


def page(*events: int, gap: Any = None) -> Act:
    return says(200, {"items": [*map(described, events)], "next_cursor": None, "gap": gap})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_events, "_POLL_SECONDS", 0.01)


def test_interrupted_client_continues_where_it_was(client_of: Clients, flaky: Flaky) -> None:
    """An error, a broken connection and a time without events: none is lost or repeated."""
    flaky.will(problem(503, "starting"), page(7), resets, resets, page(), page(8, 21))
    events = client_of(flaky.url, attempts=2).events(models="m", types=["job", "alias"], after=3)
    assert [event.id for event in islice(events, 3)] == [7, 8, 21]
    assert [after(request) for request in flaky.received] == [*("3", "3", "7", "7", "7", "7")]
    assert "model=m&type=job&type=alias" in flaky.received[0].path


def test_new_events_are_those_after_the_newest(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(page(41), page(), page(42))
    assert next(client_of(flaky.url).events()).id == 42
    assert "order=newest" in flaky.received[0].path
    assert after(flaky.received[2]) == "41"


def test_gap_is_an_event(client_of: Clients, flaky: Flaky) -> None:
    """It stands in a list where events are missing, and among new events before the first."""
    gap = {**described(6, "gap"), "model": None, "data": {"after": 3, "first": 7}}
    client = client_of(flaky.url)
    flaky.will(
        says(200, {"items": [described(7)], "next_cursor": "c", "gap": gap}),
        says(200, {"items": [described(8)], "next_cursor": None, "gap": None}),
    )
    assert [event.id for event in client.list_events(after=3, order="oldest")] == [6, 7, 8]
    flaky.will(
        says(200, {"items": [described(8)], "next_cursor": "c", "gap": gap}),
        says(200, {"items": [described(7)], "next_cursor": None, "gap": gap}),
    )
    assert [event.id for event in client.list_events(after=3)] == [8, 7, 6]
    flaky.will(page(7, gap=gap))
    first, second = islice(client.events(after=3), 2)
    assert (first.type, first.data["first"], second.id) == ("gap", 7, 7)


def test_first_request_fails_after_its_retries(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(resets)
    with pytest.raises(UnreachableError):
        next(client_of(flaky.url, attempts=3).events())
    assert len(flaky.received) == 3
    flaky.will(problem(422, "No.", {"field": "type", "found": "x", "accepted": "y"}))
    with pytest.raises(InvalidRequestError):
        next(client_of(flaky.url).events(types="x"))
    # The page of a proxy.
    flaky.will(says(200, b"<html>", Content_Type="text/html"))
    with pytest.raises(InvalidResponseError):
        next(client_of(flaky.url).events())


def record(programs: Programs, type: str, model: str) -> None:
    """Write an event to the registry of a server that runs."""
    registry = Registry(f"sqlite:///{programs.home / 'recalib.db'}", "memory://")
    with registry.transaction() as tx:
        tx.events.record(type, model, {})
    registry.close()


@pytest.mark.slow
def test_events_arrive_while_they_happen(
    client: Either, shared_programs: Programs, name: str
) -> None:
    """Those of other models do not; a second iterator continues after an event of the first."""
    received: list[Any] = []
    events = client.events(models=[name], after=0)
    client.create_model(name, 3)
    client.create_model(f"{name}-2", 3)
    for model in (f"{name}-2", name):
        record(shared_programs, "test.first", model)
    received.append(next(events))
    record(shared_programs, "test.second", name)
    received.append(next(events))
    assert [event.type for event in received] == ["test.first", "test.second"]
    again = client.events(models=[name], after=received[0].id)
    assert next(again) == received[1]
    listed = list(client.list_events(models=[name], types="test"))
    assert listed == received[::-1]


@pytest.mark.slow
def test_events_command_follows_until_it_is_interrupted(flaky: Flaky) -> None:
    flaky.will(page(3), page(4, 5), page(6), page())
    command = recalib_command("api", "events", "--server", flaky.url, "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        ids = [json.loads(line)["id"] for line in islice(process.stdout, 3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert ids == [4, 5, 6]
