"""Labels from Kafka, with librdkafka's own mock cluster: groups, commits, dead letters."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, Producer

from recalib.client import Client, Retries, ServiceError
from recalib.errors import InputError
from recalib.ingest import Kafka, Progress, ingest_kafka
from tests.client.flaky import Flaky, problem, says

# A consumer waits seconds for its group.
pytestmark = pytest.mark.slow

#: A member that has left, or was lost, holds up its group for this long.
_QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Producer]:
    """A producer that runs a cluster of three brokers."""
    producer = Producer({"test.mock.num.brokers": "3", "bootstrap.servers": "unused"})
    yield producer
    producer.flush(5)


@pytest.fixture
def brokers(cluster: Producer) -> str:
    known = cluster.list_topics(timeout=10).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in known)


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    with Flaky() as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"labels-{uuid4().hex}"


def _produce(cluster: Producer, topic: str, *messages: bytes | dict[str, Any]) -> None:
    for message in messages:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        cluster.produce(topic, content)
    assert cluster.flush(10) == 0


def _label(number: int) -> dict[str, Any]:
    return {"prediction_id": f"p{number}", "label": number}


def _answer(*statuses: str) -> Any:
    items = [{"status": status, "reason": "why"} for status in statuses]
    return says(200, {"counts": Counter(statuses), "items": items})


def _stores(flaky: Flaky, *duplicates: str) -> Any:
    """Accept each label of the request, but for duplicates: a poll may return some messages."""

    def act(connection: Any, over: Any) -> None:
        ids = [row["prediction_id"] for row in json.loads(flaky.received[-1].body)]
        statuses = ["duplicate" if name in duplicates else "accepted" for name in ids]
        _answer(*statuses)(connection, over)

    return act


def _ingest(flaky: Flaky, kafka: Kafka, messages: int) -> Progress:
    """Ingest until this number of messages is done."""
    stopped = False

    def report(progress: Progress) -> None:
        nonlocal stopped
        stopped = progress.items >= messages

    with Client(flaky.url, retries=Retries(1)) as client:
        return ingest_kafka(
            client, "m", kafka, is_stopped=lambda: stopped, report=report, idle_seconds=90
        )


def _sent(flaky: Flaky) -> list[str]:
    return [row["prediction_id"] for request in flaky.received for row in json.loads(request.body)]


def test_labels_are_stored_and_the_group_resumes(
    cluster: Producer, brokers: str, topic: str, flaky: Flaky
) -> None:
    """What is committed is not read again by the same group; another group reads all."""
    kafka = Kafka(brokers, topic, topic, options=_QUICK)
    _produce(cluster, topic, _label(0), json.dumps([_label(1), _label(2)]).encode())
    flaky.will(_stores(flaky, "p2"))
    progress = _ingest(flaky, kafka, 2)
    assert progress.to_dict()["labels"] == {"accepted": 2, "duplicate": 1}
    assert sorted(_sent(flaky)) == ["p0", "p1", "p2"]
    _produce(cluster, topic, _label(3))
    flaky.received.clear()
    assert _ingest(flaky, kafka, 1).items == 1
    assert _sent(flaky) == ["p3"]
    flaky.received.clear()
    assert _ingest(flaky, Kafka(brokers, topic, f"other-{topic}", options=_QUICK), 3).items == 3
    assert sorted(_sent(flaky)) == ["p0", "p1", "p2", "p3"]


def test_labels_that_are_not_stored_are_read_again(
    cluster: Producer, brokers: str, topic: str, flaky: Flaky
) -> None:
    """An ingest that ends before the answer commits nothing."""
    kafka = Kafka(brokers, topic, topic, options=_QUICK)
    _produce(cluster, topic, _label(0))
    flaky.will(problem(503, "away"))
    with (
        Client(flaky.url, retries=Retries(1)) as client,
        pytest.raises(ServiceError, match="away"),
    ):
        ingest_kafka(client, "m", kafka, is_stopped=lambda: bool(flaky.received))
    flaky.received.clear()
    flaky.will(_answer("accepted"))
    assert _ingest(flaky, kafka, 1).labels == {"accepted": 1}
    assert _sent(flaky) == ["p0"]


def test_bad_messages_go_to_dead_letters(
    cluster: Producer, brokers: str, topic: str, flaky: Flaky
) -> None:
    """With their place and reason; the labels beside them are stored and committed."""
    dead = f"{topic}-dead"
    bad = [b"no json", b"", b'{"prediction_id": 7, "label": 1}', b"\xff"]
    _produce(cluster, topic, *bad, _label(1), _label(2))
    flaky.will(_answer("accepted", "invalid"))
    progress = _ingest(flaky, Kafka(brokers, topic, topic, dead, _QUICK), 6)
    assert (progress.malformed, progress.labels) == (4, {"accepted": 1, "invalid": 1})
    letters = _read(brokers, dead, 5)
    reasons = [_header(letter, "reason") for letter in letters]
    assert sum("prediction_id" in reason for reason in reasons) >= 1
    assert any(reason == "invalid: why" for reason in reasons)
    values = {letter.value() or b"" for letter in letters}
    assert values >= set(bad)
    assert all(topic in _header(letter, "source") for letter in letters)


def test_bad_messages_are_logged_with_their_offset(
    cluster: Producer, brokers: str, topic: str, flaky: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    _produce(cluster, topic, b"no json")
    with caplog.at_level(logging.ERROR):
        assert _ingest(flaky, Kafka(brokers, topic, topic, options=_QUICK), 1).malformed == 1
    assert "at offset 0 are not stored" in caplog.text
    assert flaky.received == []


def test_unknown_settings_are_rejected(brokers: str, flaky: Flaky) -> None:
    kafka = Kafka(brokers, "t", "g", options={"nosuch": "1"})
    with Client(flaky.url) as client, pytest.raises(InputError, match="nosuch"):
        ingest_kafka(client, "m", kafka, is_stopped=lambda: True)


def _header(message: Message, name: str) -> str:
    value = dict(message.headers() or [])[name]
    return value.decode() if isinstance(value, bytes) else str(value)


def _read(brokers: str, topic: str, count: int) -> list[Message]:
    settings = {"bootstrap.servers": brokers, "group.id": "r", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    messages: list[Message] = []
    for _ in range(60):
        messages += [m for m in consumer.consume(count, timeout=0.5) if m.error() is None]
        if len(messages) >= count:
            break
    consumer.close()
    return messages
