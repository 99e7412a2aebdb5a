"""Labels from a topic of Kafka, at least once.

Offsets are committed after the server has stored the labels. After a crash, or when the partitions
of the group are assigned again, some messages are read twice; the server recognises their labels.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recalib.client import Client
from recalib.core.packages import optional_packages
from recalib.errors import InputError, UnavailableError
from recalib.ingest.labels import STORED, Label, decode_labels, send
from recalib.ingest.progress import Progress

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

log = logging.getLogger(__name__)

#: Messages of a batch, and how long a batch waits for them.
_MAX_MESSAGES, _WAIT_SECONDS = 10_000, 0.5
_DEAD_LETTER_SECONDS = 30.0
#: How long a group may take to assign partitions, or `idle_seconds` if that is longer.
_ASSIGNMENT_SECONDS = 60.0


@dataclass(frozen=True)
class Kafka:
    """Where messages come from.

    Parameters
    ----------
    brokers: `host:port`, separated by commas.
    dead_letters: topic for messages whose labels are not stored; without it, they are logged.
    options: further settings of librdkafka, such as `security.protocol`.
    """

    brokers: str
    topic: str
    group: str
    dead_letters: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def ingest_kafka(
    client: Client,
    model: str,
    kafka: Kafka,
    *,
    is_stopped: Callable[[], bool],
    report: Callable[[Progress], None] = lambda _: None,
    idle_seconds: float | None = None,
) -> Progress:
    """Send the labels of a topic to a server until stopped; return what was done.

    A message is JSON of a label, or of a list of labels. Messages that are not, and those of which
    the server accepts not all labels, go to the topic of dead letters, or to the log with partition
    and offset. A label that was stored before is accepted.

    Parameters
    ----------
    is_stopped: called between batches.
    report: called after each batch.
    idle_seconds: end when there was no message for this long since the group assigned partitions;
        None to go on.

    Raises
    ------
    InputError: the package confluent-kafka is not installed, or a setting is not valid.
    UnavailableError: the group assigns no partitions within a minute, or `idle_seconds` if that is
        longer; the consumer has failed for good; or dead letters cannot be written.
    ServiceError: the server refuses the labels, as for a model that does not exist.
    """
    consumer, producer = _connect(kafka)
    progress = Progress()
    last = time.monotonic()
    deadline = last + max(idle_seconds or 0.0, _ASSIGNMENT_SECONDS)
    is_assigned = False

    def note_assignment(*_: Any) -> None:
        nonlocal is_assigned, last
        if not is_assigned:
            is_assigned, last = True, time.monotonic()

    try:
        consumer.subscribe([kafka.topic], on_assign=note_assignment)
        while not is_stopped():
            messages = _messages(consumer)
            if messages:
                rejected = _ingest(client, model, messages, progress, is_stopped)
                _put_aside(rejected, kafka.dead_letters, producer)
                _commit(consumer, messages)
                progress.items += len(messages)
                report(progress)
                last = time.monotonic()
            elif not is_assigned:
                if time.monotonic() > deadline:
                    text = "no partitions are assigned: the brokers may be wrong, or the topic"
                    raise UnavailableError(f"Kafka at {kafka.brokers}, {kafka.topic}: {text}")
            elif idle_seconds is not None and time.monotonic() - last > idle_seconds:
                break
    finally:
        consumer.close()
    return progress


def _connect(kafka: Kafka) -> tuple[Consumer, Producer]:
    with optional_packages("kafka"):
        from confluent_kafka import Consumer, KafkaException, Producer
    common = {"bootstrap.servers": kafka.brokers, **kafka.options}
    settings = {
        "auto.offset.reset": "earliest",
        **common,
        "group.id": kafka.group,
        "enable.auto.commit": False,
    }
    try:
        return Consumer(settings), Producer(common)
    except (KafkaException, ValueError) as error:
        accepted = "settings of librdkafka"
        raise InputError("kafka", found=str(error), accepted=accepted) from None


def _messages(consumer: Consumer) -> list[Message]:
    """Return the next messages; errors from which librdkafka recovers are logged."""
    messages = []
    for message in consumer.consume(_MAX_MESSAGES, timeout=_WAIT_SECONDS):
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.fatal():
            raise UnavailableError(f"Kafka: {error}")
        else:
            log.warning("Kafka: %s", error, extra={"action": "kafka_error"})
    return messages


def _ingest(
    client: Client,
    model: str,
    messages: Sequence[Message],
    progress: Progress,
    is_stopped: Callable[[], bool],
) -> list[tuple[Message, str]]:
    """Send the labels of messages; return messages with labels that are not stored, with why."""
    rejected: list[tuple[Message, str]] = []
    labels: list[Label] = []
    senders: list[Message] = []
    for message in messages:
        try:
            decoded = decode_labels(message.value())
        except InputError as error:
            progress.malformed += 1
            rejected.append((message, str(error)))
            continue
        labels += decoded
        senders += [message] * len(decoded)
    outcomes = send(client, model, labels, is_stopped) if labels else []
    progress.labels.update(outcome.status for outcome in outcomes)
    refused = {
        id(message): (message, f"{outcome.status}: {outcome.reason}")
        for message, outcome in zip(senders, outcomes, strict=True)
        if outcome.status not in STORED
    }
    return rejected + list(refused.values())


def _put_aside(
    rejected: Sequence[tuple[Message, str]], topic: str | None, producer: Producer
) -> None:
    """Write messages to the topic of dead letters, or to the log."""
    failures: list[KafkaError] = []
    for message, reason in rejected:
        if topic is None:
            _log(message, reason)
        else:
            _produce(producer, topic, message, reason, failures)
            producer.poll(0)
    if rejected and topic is not None:
        waiting = producer.flush(_DEAD_LETTER_SECONDS)
        if waiting or failures:
            cause = str(failures[0]) if failures else f"{waiting} are not delivered"
            raise UnavailableError(f"dead letters cannot be written to {topic}: {cause}")


def _produce(
    producer: Producer, topic: str, message: Message, reason: str, failures: list[KafkaError]
) -> None:
    """Write a message to the topic of dead letters; to the log if its headers make it too large."""
    from confluent_kafka import KafkaError, KafkaException

    def note_delivery(error: KafkaError | None, _: Message | None = None) -> None:
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            _log(message, f"{reason}; the message is too large for {topic}")
        elif error is not None:
            failures.append(error)

    headers: dict[str, str | bytes | None] = {
        "source": _place(message).encode(),
        "reason": reason.encode(),
    }
    while True:
        try:
            producer.produce(
                topic, message.value(), message.key(), headers=headers, on_delivery=note_delivery
            )
            return
        except BufferError:  # the queue is full
            if not producer.poll(_DEAD_LETTER_SECONDS):
                text = f"dead letters cannot be written to {topic}: the queue stays full"
                raise UnavailableError(text) from None
        except KafkaException as error:
            note_delivery(error.args[0])
            return


def _place(message: Message) -> str:
    return f"{message.topic()}[{message.partition()}] at offset {message.offset()}"


def _log(message: Message, reason: str) -> None:
    fields = {"action": "message_rejected", "partition": message.partition()}
    fields |= {"offset": message.offset()}
    log.error("Labels of %s are not stored: %s", _place(message), reason, extra=fields)


def _commit(consumer: Consumer, messages: Sequence[Message]) -> None:
    """Commit the offsets after `messages`; if it fails, they are read again."""
    from confluent_kafka import KafkaException, TopicPartition

    # Messages of a partition are in the order of their offsets.
    last = {(message.topic(), message.partition()): message for message in messages}
    offsets = [
        TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)
        for message in last.values()
    ]
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        # Such as after a new assignment of the partitions.
        log.warning("Offsets are not committed: %s", error, extra={"action": "not_committed"})
