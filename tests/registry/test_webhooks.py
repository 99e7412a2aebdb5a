"""Webhooks: which events they get, in which order, and when attempts end."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text, update

from recalib.contract.events import Webhook
from recalib.errors import ConflictError, FencedError, NotFoundError
from recalib.registry import Registry, WebhookLease, tables
from recalib.registry.events import Events
from tests.registry.interleaving import Interleaved

_URL = "https://example.com/hook"


def a_webhook(registry: Registry, model: str | None = None, *types: str) -> Webhook:
    with registry.transaction() as tx:
        webhook, secret = tx.webhooks.create(_URL, model, types, "recalib", "anna")
    assert len(secret) == 32
    return webhook


def record(registry: Registry, *events: tuple[str, str | None]) -> None:
    with registry.transaction() as tx:
        for type_, model in events:
            tx.events.record(type_, model, {})


def claimed(registry: Registry, seconds: float = 60.0) -> WebhookLease:
    with registry.transaction() as tx:
        assert tx.webhooks.are_due()
        lease = tx.webhooks.claim(seconds)
    assert lease is not None
    return lease


def is_idle(registry: Registry) -> bool:
    with registry.transaction() as tx:
        return not tx.webhooks.are_due() and tx.webhooks.claim(60.0) is None


def ids(lease: WebhookLease) -> list[int]:
    return [delivery.event.id for delivery in lease.due]


def states(registry: Registry, webhook: Webhook) -> list[tuple[int, str, int]]:
    with registry.reading() as tx:
        rows = tx.webhooks.deliveries(webhook.id, None, None, 100)
    return [(row.event_id, row.state, row.attempts) for row in rows]


def let_pauses_pass(registry: Registry) -> None:
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE webhooks SET retry_at = 1 WHERE retry_at > 1"))
        tx.connection.execute(
            text("UPDATE webhook_deliveries SET next_attempt_at = 1 WHERE state = 'pending'")
        )


def finish(registry: Registry, lease: WebhookLease, method: str, *outcome: Any) -> None:
    """Record one outcome for the first delivery, and release."""
    with registry.transaction() as tx:
        getattr(tx.webhooks, method)(lease, lease.due[0].event.id, *outcome)
        tx.webhooks.release(lease)


def test_webhook_gets_later_events_that_match_in_order(registry: Registry) -> None:
    record(registry, ("job.failed", "a"))
    webhook = a_webhook(registry, "a", "job", "alias.changed")
    assert is_idle(registry)
    record(registry, ("alias.changed", "a"), ("job.failed", "b"), ("job.queued", "a"))
    record(registry, ("candidate.proven", "a"), ("job.failed", None), ("job.failed", "a"))
    lease = claimed(registry)
    assert ids(lease) == [2, 4, 7]
    assert lease.due[0].event.type == "alias.changed"
    # Another worker gets nothing, and an event that matches no filter makes no delivery.
    assert is_idle(registry)
    with registry.transaction() as tx:
        tx.webhooks.record_success(lease, 2, 200)
        tx.webhooks.record_success(lease, 4, 204)
        tx.webhooks.release(lease)
    record(registry, ("job.queued", "a"))
    # A release keeps the rest; they come before the new event, which waits.
    assert ids(claimed(registry)) == [7]
    assert states(registry, webhook) == [
        (7, "pending", 0),
        (4, "delivered", 1),
        (2, "delivered", 1),
    ]


def test_event_that_is_committed_during_a_claim_is_delivered_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = a_webhook(registry)
    record(registry, ("job.queued", "a"))
    read_last = Events.last

    def read_last_before_another_commit(events: Events) -> int:
        last = read_last(events)
        if "postgresql" in registry._engine.dialect.name:  # SQLite has one writer at a time
            monkeypatch.setattr(Events, "last", read_last)
            record(registry, ("job.failed", "a"))
        return last

    monkeypatch.setattr(Events, "last", read_last_before_another_commit)
    finish(registry, claimed(registry), "record_success", 200)
    monkeypatch.setattr(Events, "last", read_last)
    record(registry, ("job.queued", "b"))
    while not is_idle(registry):
        finish(registry, claimed(registry), "record_success", 200)
    with registry.reading() as tx:
        last = tx.events.last()
    assert states(registry, webhook) == [(id, "delivered", 1) for id in range(last, 0, -1)]


@pytest.mark.parametrize("change", ["redeliver", "change", "delete"])
def test_webhook_may_change_while_an_outcome_is_recorded(registry: Registry, change: str) -> None:
    """The worker and the change lock rows in one order, and neither waits for ever."""
    webhook = a_webhook(registry)
    record(registry, ("job.queued", "a"))
    lease = claimed(registry)
    worker = Interleaved(registry, lambda: finish(registry, lease, "record_success", 200))
    arguments = {"redeliver": [1], "change": [None, True], "delete": []}[change]
    with registry.transaction() as tx:
        worker.start_after_write(tx)
        getattr(tx.webhooks, change)(webhook.id, *arguments)
    if change == "delete":
        with pytest.raises(FencedError):
            worker.finish()
    else:
        worker.finish()
        assert states(registry, webhook) == [(1, "delivered", 1)]


def test_webhook_is_deleted_while_a_worker_claims_it(registry: Registry) -> None:
    """The claim adds no delivery to a deleted webhook."""
    webhook = a_webhook(registry)
    record(registry, ("job.queued", "a"))

    def claim() -> None:
        with registry.transaction() as tx:
            assert tx.webhooks.claim(60.0) is None

    worker = Interleaved(registry, claim)
    with registry.transaction() as tx:
        worker.start_after_write(tx)
        tx.webhooks.delete(webhook.id)
    worker.finish()
    assert states(registry, webhook) == []


def test_refused_event_is_repeated_until_it_is_dead_and_holds_up_no_other(
    registry: Registry,
) -> None:
    webhook = a_webhook(registry)
    record(registry, ("job.failed", None), ("job.failed", None))
    finish(registry, claimed(registry), "record_refusal", 400, "status 400: no", 3)
    lease = claimed(registry)  # the refused event waits, the other does not
    assert ids(lease) == [2]
    finish(registry, lease, "record_success", 200)
    assert is_idle(registry)
    for attempts in (2, 3):
        let_pauses_pass(registry)
        lease = claimed(registry)
        assert ids(lease) == [1]
        finish(registry, lease, "record_refusal", 422, "status 422", 3)
        state = "dead" if attempts == 3 else "pending"
        assert states(registry, webhook)[1] == (1, state, attempts)
    let_pauses_pass(registry)
    assert is_idle(registry)
    with registry.reading() as tx:
        assert tx.webhooks.get(webhook.id).enabled
        (dead,) = tx.webhooks.deliveries(webhook.id, "dead", None, 10)
        assert (dead.status, dead.error, dead.type) == (422, "status 422", "job.failed")
    with registry.transaction() as tx:
        tx.webhooks.redeliver(webhook.id, 1)
        with pytest.raises(NotFoundError):
            tx.webhooks.redeliver(webhook.id, 3)
    lease = claimed(registry)
    assert (ids(lease), lease.due[0].attempts) == ([1], 0)
    finish(registry, lease, "record_success", 200)
    assert states(registry, webhook) == [(2, "delivered", 1), (1, "delivered", 1)]


def test_webhook_of_an_absent_receiver_is_disabled_and_loses_nothing(registry: Registry) -> None:
    webhook = a_webhook(registry)
    record(registry, ("job.failed", None), ("job.queued", None))
    for attempt in range(3):
        lease = claimed(registry)
        # Each attempt takes the event that was tried least, so one event cannot stop the others.
        assert ids(lease)[0] == (1, 2, 1)[attempt]
        finish(registry, lease, "record_absence", None, "no connection", 3)
        assert is_idle(registry)  # also for events that were not tried
        let_pauses_pass(registry)
    with registry.reading() as tx:
        disabled = tx.webhooks.get(webhook.id)
        assert (disabled.enabled, tx.audit.page(None, 1)[0].action) == (False, "disable_webhook")
        assert tx.events.page(1, newest_first=True)[0].type == "webhook.disabled"
    assert disabled.reason == "3 attempts in a row have failed: no connection"
    record(registry, ("job.started", None))
    assert is_idle(registry)
    with registry.transaction() as tx:
        tx.webhooks.change(webhook.id, None, True)
    sent: list[int] = []
    while not is_idle(registry):
        with registry.transaction() as tx:  # the probe above has claimed it
            tx.connection.execute(text("UPDATE webhooks SET lease_expires = 1"))
        lease = claimed(registry)
        sent += ids(lease)
        with registry.transaction() as tx:
            for delivery in lease.due:
                tx.webhooks.record_success(lease, delivery.event.id, 200)
            tx.webhooks.release(lease)
    assert sent == [1, 2, 3, 4]


def test_absence_after_successes_ends_only_the_delivery(registry: Registry) -> None:
    """An event that breaks the receiver does not disable the webhook."""
    webhook = a_webhook(registry)
    record(registry, ("job.failed", None))
    for attempt in range(2):
        let_pauses_pass(registry)
        finish(registry, claimed(registry), "record_absence", 500, "status 500", 2 + attempt)
        if attempt == 0:
            with registry.transaction() as tx:
                tx.connection.execute(text("UPDATE webhooks SET failures = 0"))
    assert states(registry, webhook) == [(1, "pending", 2)]
    let_pauses_pass(registry)
    finish(registry, claimed(registry), "record_absence", 500, "status 500", 3)
    assert states(registry, webhook) == [(1, "dead", 3)]
    with registry.reading() as tx:
        assert tx.webhooks.get(webhook.id).enabled


def test_worker_without_the_lease_records_nothing(registry: Registry) -> None:
    webhook = a_webhook(registry)
    record(registry, ("job.failed", None))
    late, lease = claimed(registry, -1.0), claimed(registry)
    assert ids(late) == ids(lease) == [1]
    with pytest.raises(FencedError):
        finish(registry, late, "record_success", 200)
    finish(registry, lease, "record_success", 200)
    with registry.transaction() as tx:
        tx.webhooks.delete(webhook.id)
        with pytest.raises(NotFoundError):
            tx.webhooks.get(webhook.id)
    with pytest.raises(FencedError):
        finish(registry, lease, "record_success", 200)


def test_deliveries_end_with_their_events(registry: Registry) -> None:
    webhook = a_webhook(registry)
    record(registry, ("job.failed", None))
    claimed(registry)
    with registry.transaction() as tx:
        assert tx.webhooks.purge() == 0
        tx.events.purge(-10.0)
        assert tx.webhooks.purge() == 1
    assert states(registry, webhook) == []


def test_number_of_webhooks_is_limited(registry: Registry) -> None:
    with registry.transaction() as tx:
        for _ in range(100):
            tx.webhooks.create(_URL, None, [], "recalib", "anna")
        with pytest.raises(ConflictError, match="the maximum"):
            tx.webhooks.create(_URL, None, [], "recalib", "anna")
        first = tx.webhooks.page(None, None, 60)
        assert len(first + tx.webhooks.page(None, first[-1].id, 60)) == 100


def test_events_and_webhooks_follow_a_new_name_of_their_model(registry: Registry) -> None:
    """A model that takes the old name has none of them."""
    with registry.transaction() as tx:
        model = tx.models.create("before", None, 2, "anna")
    webhook = a_webhook(registry, "before")
    record(registry, ("job.failed", "before"))
    with registry.transaction() as tx:
        tx.edits.model(model, "anna", name="after")
    record(registry, ("job.queued", "after"))
    with registry.reading() as tx:
        assert tx.events.page(10, models=["before"], types=["job"]) == []
        assert len(tx.events.page(10, models=["after"], types=["job"])) == 2
        assert [item.id for item in tx.webhooks.page("after", None, 10)] == [webhook.id]
    sent = [delivery.event.type for delivery in claimed(registry).due]
    assert {"job.failed", "job.queued"} <= set(sent)


def test_previous_secrets_sign_until_they_end(registry: Registry) -> None:
    """A second rotation keeps the first secret, which the receiver may still have."""
    with registry.transaction() as tx:
        webhook, first = tx.webhooks.create(_URL, None, [], "recalib", "anna")
        assert webhook.previous_secrets_until is None
        rotated, second = tx.webhooks.rotate_secret(webhook.id, 60.0)
        until = rotated.previous_secrets_until
        later, third = tx.webhooks.rotate_secret(webhook.id, 3600.0)
        assert until is not None
        assert later.previous_secrets_until is not None
        longer = (later.previous_secrets_until - until).total_seconds()
        assert longer == pytest.approx(3540, abs=60)
    record(registry, ("job.failed", None))
    lease = claimed(registry)
    assert lease.secrets == [third, second, first]
    finish(registry, lease, "record_success", 200)
    seconds = until.timestamp()
    previous = [[second.hex(), seconds + 1e6], [first.hex(), seconds - 1e6]]
    with registry.transaction() as tx:
        tx.connection.execute(update(tables.webhooks).values(previous_secrets=previous))
    record(registry, ("job.failed", None))
    lease = claimed(registry)
    assert lease.secrets == [third, second]
    finish(registry, lease, "record_success", 200)
    with registry.transaction() as tx:
        for _ in range(3):
            tx.webhooks.rotate_secret(webhook.id, 60.0)
        with pytest.raises(ConflictError, match="has 4 previous secrets"):
            tx.webhooks.rotate_secret(webhook.id, 60.0)
        ended, last = tx.webhooks.rotate_secret(webhook.id, 0.0)
        assert ended.previous_secrets_until is None
    record(registry, ("job.failed", None))
    assert claimed(registry).secrets == [last]
