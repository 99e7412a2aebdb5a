"""Kafka that cannot be reached, is slow, or takes no dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from recalib.client import Client
from recalib.errors import UnavailableError
from recalib.ingest import Kafka, Progress, ingest_kafka, kafka

_KAFKA = Kafka("127.0.0.1:1", "labels", "group", "dead", {"log_level": "0"})
_TOO_LARGE = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))


class _Message:
    def topic(self) -> str:
        return "labels"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def error(self) -> None:
        return None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"no json"


class _Consumer:
    """Assigns partitions at the fourth call, and has a message at the fifth."""

    def __init__(self) -> None:
        self.calls = self.commits = 0

    def subscribe(self, topics: list[str], on_assign: Callable[..., None]) -> None:
        self._on_assign = on_assign

    def consume(self, count: int, timeout: float) -> list[_Message]:
        self.calls += 1
        if self.calls == 4:
            self._on_assign(self, [])
        return [_Message()] if self.calls == 5 else []

    def commit(self, **_: Any) -> None:
        self.commits += 1

    def close(self) -> None:
        pass


class _Producer:
    """Raises `errors`, one a call, before it takes messages; the last with a delivery error."""

    def __init__(self, errors: list[Exception], delivery: KafkaError | None = None) -> None:
        self.errors, self._delivery = errors, delivery
        self.letters: list[bytes] = []

    def produce(self, topic: str, value: bytes, *_: Any, on_delivery: Any, **__: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.letters.append(value)
        on_delivery(self._delivery, None)

    def poll(self, timeout: float) -> int:
        return 1

    def flush(self, timeout: float) -> int:
        return 0


def _ingest(monkeypatch: pytest.MonkeyPatch, consumer: _Consumer, producer: _Producer) -> Progress:
    """Each look at the clock is a second later than the one before."""
    seconds = iter(range(1000))
    monkeypatch.setattr(kafka.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(kafka, "_connect", lambda _: (consumer, producer))
    with Client("http://127.0.0.1:1") as client:
        return ingest_kafka(client, "m", _KAFKA, is_stopped=lambda: False, idle_seconds=1.5)


def test_unreachable_brokers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without an end at idleness."""
    monkeypatch.setattr(kafka, "_ASSIGNMENT_SECONDS", 0.02)
    monkeypatch.setattr(kafka, "_WAIT_SECONDS", 0.02)
    for idle in (0.0, None):
        with (
            Client("http://127.0.0.1:1") as client,
            pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1, labels: no partitions"),
        ):
            ingest_kafka(client, "m", _KAFKA, is_stopped=lambda: False, idle_seconds=idle)


def test_assignment_of_partitions_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group takes longer than the idle time, which counts from then and from each message."""
    consumer, producer = _Consumer(), _Producer([])
    assert _ingest(monkeypatch, consumer, producer).items == 1
    assert (consumer.commits, producer.letters) == (1, [b"no json"])


def test_dead_letter_waits_for_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = _Producer([BufferError("full"), BufferError("full")])
    _ingest(monkeypatch, _Consumer(), producer)
    assert producer.letters == [b"no json"]


@pytest.mark.parametrize(
    ("errors", "delivery"),
    [([_TOO_LARGE], None), ([], KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))],
    ids=["producer", "broker"],
)
def test_dead_letter_that_is_too_large_is_logged(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    errors: list[Exception],
    delivery: KafkaError | None,
) -> None:
    """Its offset is committed, so that it is not read again."""
    consumer = _Consumer()
    with caplog.at_level(logging.ERROR):
        _ingest(monkeypatch, consumer, _Producer(list(errors), delivery))
    assert "labels[0] at offset 7 are not stored: message: found" in caplog.text
    assert consumer.commits == 1


def test_other_errors_of_dead_letters_commit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _Consumer()
    error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(UnavailableError, match="dead letters cannot be written to dead"):
        _ingest(monkeypatch, consumer, _Producer([error]))
    assert consumer.commits == 0


def test_largest_message_is_too_large_with_headers() -> None:
    """The error of librdkafka is the one that is handled."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    with pytest.raises(KafkaException) as excinfo:
        producer.produce("dead", b"x" * 1_000_000, headers={"reason": b"why"})
    assert excinfo.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
