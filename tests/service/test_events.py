"""Events: pages over REST and gRPC, who may see them, and the stream of gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from recalib.registry import Registry
from recalib.settings import Settings
from service.app import create_app
from tests.service.conftest import Service
from tests.service.stubs import SERVICES, Rpc

pytestmark = pytest.mark.sqlite_only


def message(rpc: str, **fields: Any) -> Any:
    return SERVICES["Events"].methods_by_name[rpc].input_type._concrete_class(**fields)


def record(registry: Registry, *events: tuple[str, str | None]) -> None:
    with registry.transaction() as tx:
        for type_, model in events:
            tx.events.record(type_, model, {"n": 1})


def listed(client: Any, path: str = "/v1/events", **query: Any) -> list[int]:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


@pytest.fixture
def filled(service: Service) -> Service:
    """A service with the models a and b and six events."""
    for name in ("a", "b"):
        service.model(name)
    record(
        service.registry,
        ("job.queued", "a"),
        ("job.failed", "b"),
        ("alias.changed", "a"),
        ("job.started", None),
        ("job.failed", "a"),
        ("monitoring.state_changed", "b"),
    )
    return service


@pytest.mark.both_databases
def test_events_have_pages_orders_and_filters(filled: Service, rpc: Rpc) -> None:
    client = filled.client
    assert listed(client) == [6, 5, 4, 3, 2, 1]
    assert listed(client, order="oldest", after=2) == [3, 4, 5, 6]
    assert listed(client, model=["a", "b"], type=["job.failed", "alias"]) == [5, 3, 2]
    assert listed(client, "/v1/models/a/events", type="job") == [5, 1]
    (event,) = client.get("/v1/events?limit=1").json()["items"]
    assert (event["type"], event["model"]) == ("monitoring.state_changed", "b")
    assert event["data"] == {"n": 1}
    for order, expected in (("newest", [5, 4, 3, 2, 1]), ("oldest", [2, 3, 4, 5, 6])):
        ids, query = [], {"limit": 2, "order": order}
        while True:
            page = client.get("/v1/events", params=query).json()
            ids += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert ids[1:] == expected
    page = rpc.events.list_events(message("ListEvents", models=["a"], order=1, limit=2))
    assert [item.id for item in page.items] == [1, 3]
    assert not page.items[0].HasField("model") or page.items[0].model == "a"
    page = rpc.events.list_events(
        message("ListEvents", models=["a"], order=1, limit=2, cursor=page.next_cursor)
    )
    assert [item.id for item in page.items] == [5]
    page = rpc.events.list_model_events(message("ListModelEvents", model="b", types=["job"]))
    assert [(item.id, item.data["n"]) for item in page.items] == [(2, 1)]


@pytest.mark.both_databases
def test_consumer_is_told_of_events_that_are_no_longer_held(filled: Service, rpc: Rpc) -> None:
    """In pages by a field, in a stream by an event, for any filter."""
    with filled.registry.transaction() as tx:
        tx.connection.execute(text("UPDATE events SET at = 1 WHERE id <= 4"))
        tx.events.purge(60.0)
    for query in ("after=2", "after=2&order=oldest&type=job.queued", "after=2&model=a"):
        gap = filled.client.get(f"/v1/events?{query}").json()["gap"]
        assert (gap["type"], gap["id"], gap["model"]) == ("gap", 4, None)
        assert gap["data"] == {
            "after": 2,
            "first": 5,
            "reason": "events 3 to 4 are no longer held",
        }
    for query in ("", "?after=0", "?after=4", "?after=6"):
        assert filled.client.get(f"/v1/events{query}").json()["gap"] is None, query
    gap = filled.client.get("/v1/events?after=9").json()["gap"]
    assert gap["data"]["reason"].startswith("the newest event is 6;")
    page = rpc.events.list_events(message("ListEvents", after=2))
    assert (page.gap.type, page.gap.id) == ("gap", 4)
    assert not rpc.events.list_events(message("ListEvents")).HasField("gap")
    stream = rpc.events.stream_events(message("StreamEvents", after=1, types=["job.failed"]))
    assert [next(stream).type, next(stream).type] == ["gap", "job.failed"]
    stream.cancel()


def test_bad_filters_are_rejected(filled: Service, rpc: Rpc) -> None:
    for query in ("type=job%25", "type=", "after=-1", "order=random", "cursor=eA=="):
        assert filled.client.get(f"/v1/events?{query}").status_code == 422, query
    many = "&".join(f"model=m{number}" for number in range(101))
    assert filled.client.get(f"/v1/events?{many}").status_code == 422
    for fields in ({"after": -1}, {"types": ["%"]}):
        with pytest.raises(grpc.RpcError) as error:
            list(rpc.events.stream_events(message("StreamEvents", **fields)))
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def guarded(registry: Registry, database_url: str, blob_url: str) -> Iterator[Any]:
    settings = Settings(
        database_url=database_url,
        blob_url=blob_url,
        grpc_port=0,
        require_keys=True,
        refresh_seconds=0.05,
        max_event_streams=8,
    )
    with registry.transaction() as tx:
        for name in ("a", "b"):
            tx.models.create(name, None, 2, "test")
        keys = {
            "all": tx.api_keys.create("all", ["fit"]),
            "a": tx.api_keys.create("a", ["fit"], ["a"]),
            "web": tx.api_keys.create("web", ["predict"]),
        }
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.keys = {name: f"Bearer {secret}" for name, secret in keys.items()}
        yield client


def test_a_key_sees_only_events_of_its_models(guarded: Any, registry: Registry) -> None:
    record(registry, ("job.queued", "a"), ("job.queued", "b"), ("job.queued", None))
    for key, query, status in (
        ("all", "", 200),
        ("web", "", 403),
        ("a", "", 403),
        ("a", "?model=b", 403),
        ("a", "?model=a&model=b", 403),
        ("a", "?model=a", 200),
    ):
        headers = {"Authorization": guarded.keys[key]}
        answer = guarded.get(f"/v1/events{query}", headers=headers)
        assert answer.status_code == status, (key, query)
    guarded.headers["Authorization"] = guarded.keys["a"]
    assert listed(guarded, model="a") == [1]
    assert guarded.get("/v1/models/b/events").status_code == 403


@pytest.mark.both_databases
def test_grpc_stream_sends_events_until_its_key_is_revoked(
    guarded: Any, registry: Registry
) -> None:
    """It continues after a given event; a key has a share of the streams."""
    record(registry, ("job.queued", "a"), ("job.queued", "b"), ("job.started", "a"))
    metadata = [("authorization", guarded.keys["a"])]
    with Rpc(f"127.0.0.1:{guarded.app.state.grpc_port}") as rpc:

        def open_stream(**fields: Any) -> Any:
            request = message("StreamEvents", models=["a"], **fields)
            return rpc.events.stream_events(request, metadata=metadata)

        first, second = open_stream(after=0), open_stream()
        assert [next(first).id, next(first).id] == [1, 3]
        second.initial_metadata()
        with pytest.raises(grpc.RpcError) as error:
            next(open_stream())
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "'a' has 2 event streams, its share" in error.value.details()
        other = rpc.events.stream_events(
            message("StreamEvents"), metadata=[("authorization", guarded.keys["all"])]
        )
        other.initial_metadata()
        other.cancel()
        record(registry, ("job.failed", "b"), ("job.failed", "a"))
        for stream in (first, second):
            event = next(stream)
            assert (event.id, event.type, event.model) == (5, "job.failed", "a")
        second.cancel()
        with registry.transaction() as tx:
            tx.api_keys.revoke("a")
        guarded.app.state.recalib.access.refresh()
        record(registry, ("job.failed", "a"))
        with pytest.raises(grpc.RpcError) as error:
            next(first)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_stop_ends_grpc_streams(registry: Registry, database_url: str, blob_url: str) -> None:
    """They do not take the time that requests have to finish."""
    settings = Settings(database_url=database_url, blob_url=blob_url, grpc_port=0)
    received: list[Any] = []

    def follow(stream: Any) -> None:
        received.extend(stream)

    with TestClient(create_app(settings)) as client:
        rpc = Rpc(f"127.0.0.1:{client.app.state.grpc_port}")
        stream = rpc.events.stream_events(message("StreamEvents"))
        stream.initial_metadata()
        reader = threading.Thread(target=follow, args=(stream,))
        reader.start()
        began = time.monotonic()
    assert time.monotonic() - began < 8  # of the 10 seconds that other RPCs have
    reader.join(10)
    assert stream.code() is grpc.StatusCode.OK
    assert received == []
    rpc.channel.close()
