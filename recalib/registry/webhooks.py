"""Queries of the tables `webhooks` and `webhook_deliveries`.

A webhook has a position: a worker creates a delivery for each matching event after it. Deliveries
go out in the order of events, those that were tried less often first. One worker at a time has the
lease of a webhook. A message may arrive twice, if a worker dies before it records the answer, and
never gets lost while its event exists.

If the receiver is away, the webhook waits with exponential backoff, and after the last attempt it
is disabled; its deliveries stay pending. If the receiver refuses an event, only this delivery is
repeated, and is dead after the last attempt; others go on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from recalib.contract.events import Delivery, DeliveryState, Webhook
from recalib.errors import ConflictError, FencedError, NotFoundError
from recalib.registry import tables
from recalib.registry.audit import Audit
from recalib.registry.base import Queries, columns_without, select_page
from recalib.registry.clock import now
from recalib.registry.events import Events
from recalib.registry.records import DueDelivery, WebhookLease

_TABLE = tables.webhooks
_DELIVERY = tables.webhook_deliveries
_SECRET_BYTES = 32
_MAX_WEBHOOKS = 100
#: Events that become deliveries at once, and deliveries of one lease.
_MAX_EVENTS, _MAX_DUE = 500, 50
#: Bounds of the pause between attempts; the first grows fourfold each time.
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 5.0, 21_600.0
_MAX_ERROR_LENGTH = 300
#: Previous secrets of a webhook, each of which lengthens the header of the signatures.
_MAX_PREVIOUS_SECRETS = 4
_IS_PENDING = _DELIVERY.c.state == "pending"
_NEXT_ATTEMPT = case((_IS_PENDING, _DELIVERY.c.next_attempt_at)).label("next_attempt_at")
_HIDDEN = ("secret", "position", "retry_at", "lease_expires", "fence", "failures")
_COLUMNS = columns_without(_TABLE, *_HIDDEN)


class Webhooks(Queries):
    """Receivers of events, and what they were sent."""

    def create(
        self, url: str, model: str | None, types: Sequence[str], format: str, actor: str
    ) -> tuple[Webhook, bytes]:
        """Add a webhook for later events; return it with its secret.

        Raises
        ------
        ConflictError: there are too many webhooks.
        """
        count = self._connection.scalar(select(func.count()).select_from(_TABLE)) or 0
        if count >= _MAX_WEBHOOKS:
            raise ConflictError(f"there are {count} webhooks, the maximum")
        webhook_id, secret = uuid4().hex, os.urandom(_SECRET_BYTES)
        self._connection.execute(
            insert(_TABLE).values(
                id=webhook_id,
                url=url,
                model=model,
                types=list(types),
                format=format,
                secret=secret,
                enabled=True,
                reason="",
                position=Events(self._connection).last(),
                failures=0,
                fence=0,
                created_by=actor,
                created_at=now(),
            )
        )
        return self.get(webhook_id), secret

    def get(self, webhook_id: str) -> Webhook:
        """Return the webhook, or raise `NotFoundError`."""
        statement = select(*_COLUMNS).where(_TABLE.c.id == webhook_id)
        return self._get(_webhook, statement, "webhook", webhook_id)

    def page(self, model: str | None, after: str | None, limit: int) -> list[Webhook]:
        """Return up to `limit` webhooks by id, after the id `after`."""
        statement = select_page(select(*_COLUMNS), _TABLE.c.id, limit, after)
        if model is not None:
            statement = statement.where(_TABLE.c.model == model)
        return self._read(_webhook, statement)

    def change(self, webhook_id: str, url: str | None, enabled: bool | None) -> Webhook:
        """Change the URL, or enable or disable it; None keeps a value.

        An enabled webhook continues after its last event, and attempts are counted from zero.
        """
        self._lock(webhook_id)
        values: dict[str, Any] = {} if url is None else {"url": url}
        if enabled is not None:
            values |= {"enabled": enabled, "reason": "" if enabled else "by request"}
        if enabled:
            values |= {"failures": 0, "retry_at": None}
            self._connection.execute(
                update(_DELIVERY)
                .where(_DELIVERY.c.webhook_id == webhook_id, _IS_PENDING)
                .values(attempts=0, next_attempt_at=now())
            )
        if values:
            self._execute(update(_TABLE).where(_TABLE.c.id == webhook_id).values(**values))
        return self.get(webhook_id)

    def rotate_secret(self, webhook_id: str, overlap_seconds: float) -> tuple[Webhook, bytes]:
        """Replace the secret of a webhook; return the webhook and the new secret.

        Parameters
        ----------
        overlap_seconds: how long the present secret signs too. 0 ends all previous secrets.

        Raises
        ------
        ConflictError: too many previous secrets have not ended.
        NotFoundError: the webhook has been deleted.
        """
        current = self._connection.execute(
            select(_TABLE.c.secret, _TABLE.c.previous_secrets, now().label("at"))
            .where(_TABLE.c.id == webhook_id)
            .with_for_update()  # two rotations at once would lose a secret
        ).one_or_none()
        if current is None:
            raise NotFoundError("webhook", webhook_id)
        previous = _valid(current.previous_secrets, current.at) if overlap_seconds else []
        if len(previous) >= _MAX_PREVIOUS_SECRETS:
            raise ConflictError(
                f"webhook {webhook_id} has {len(previous)} previous secrets that have not ended, "
                "the maximum; an overlap of 0 seconds ends them"
            )
        if overlap_seconds:
            previous.insert(0, [bytes(current.secret).hex(), current.at + overlap_seconds])
        secret = os.urandom(_SECRET_BYTES)
        values = {"secret": secret, "previous_secrets": previous or None}
        self._connection.execute(update(_TABLE).where(_TABLE.c.id == webhook_id).values(**values))
        return self.get(webhook_id), secret

    def rename(self, before: str, after: str) -> None:
        """Let the webhooks of a model follow its new name."""
        self._connection.execute(update(_TABLE).where(_TABLE.c.model == before).values(model=after))

    def delete(self, webhook_id: str) -> None:
        """Remove the webhook and its deliveries."""
        self._lock(webhook_id)
        self._connection.execute(delete(_DELIVERY).where(_DELIVERY.c.webhook_id == webhook_id))
        self._connection.execute(delete(_TABLE).where(_TABLE.c.id == webhook_id))

    def deliveries(
        self, webhook_id: str, state: DeliveryState | None, before: int | None, limit: int
    ) -> list[Delivery]:
        """Return up to `limit` deliveries with events before `before`, newest first."""
        hidden = ("webhook_id", "next_attempt_at")
        statement = (
            select(*columns_without(_DELIVERY, *hidden), tables.events.c.type, _NEXT_ATTEMPT)
            .outerjoin(tables.events, tables.events.c.id == _DELIVERY.c.event_id)
            .where(_DELIVERY.c.webhook_id == webhook_id)
        )
        if state is not None:
            statement = statement.where(_DELIVERY.c.state == state)
        page = select_page(statement, _DELIVERY.c.event_id, limit, before, newest_first=True)
        return self._read(Delivery, page)

    def redeliver(self, webhook_id: str, event_id: int) -> None:
        """Send an event again; raise `NotFoundError` if there is no delivery of it."""
        self._lock(webhook_id)
        place = and_(_DELIVERY.c.webhook_id == webhook_id, _DELIVERY.c.event_id == event_id)
        values = {"state": "pending", "attempts": 0, "next_attempt_at": now()}
        if not self._execute(update(_DELIVERY).where(place).values(values)):
            raise NotFoundError("delivery", str(event_id))
        self._execute(update(_TABLE).where(_TABLE.c.id == webhook_id).values(retry_at=None))

    def purge(self) -> int:
        """Delete the deliveries of events that were deleted; return their number."""
        last = Events(self._connection).last()
        oldest = self._connection.scalar(select(func.min(tables.events.c.id))) or last + 1
        return self._execute(delete(_DELIVERY).where(_DELIVERY.c.event_id < oldest))

    def are_due(self) -> bool:
        """Return whether `claim` would find a webhook."""
        return bool(self._connection.scalar(select(exists().where(_is_due()))))

    def claim(self, lease_seconds: float) -> WebhookLease | None:
        """Claim the webhook with deliveries that has waited longest; None if there is none."""
        candidate = (
            select(_TABLE.c.id)
            .where(_is_due())
            .order_by(func.coalesce(_TABLE.c.lease_expires, 0.0))
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        row = self._connection.execute(
            update(_TABLE)
            .where(_TABLE.c.id == candidate.scalar_subquery())
            .values(lease_expires=now() + lease_seconds, fence=_TABLE.c.fence + 1)
            .returning(
                _TABLE.c.id,
                _TABLE.c.fence,
                _TABLE.c.secret,
                _TABLE.c.previous_secrets,
                _TABLE.c.position,
                now().label("at"),
            )
        ).one_or_none()
        if row is None:
            return None
        webhook = self.get(row.id)
        due = self._due(webhook)
        if not due:
            self._add_deliveries(webhook, row.position)
            due = self._due(webhook)
        previous = [bytes.fromhex(secret) for secret, _ in _valid(row.previous_secrets, row.at)]
        return WebhookLease(webhook, [bytes(row.secret), *previous], row.fence, due)

    def release(self, lease: WebhookLease) -> None:
        """End the lease."""
        self._write(lease, lease_expires=now())

    def record_success(self, lease: WebhookLease, event_id: int, status: int) -> None:
        """Record that the receiver has accepted an event."""
        self._write(lease, failures=0, retry_at=None)
        self._record(lease, event_id, "delivered", status, "")

    def record_refusal(
        self, lease: WebhookLease, event_id: int, status: int, error: str, max_attempts: int
    ) -> None:
        """Record that the receiver has answered that it does not accept an event."""
        self._write(lease, failures=0, retry_at=None)
        attempts = self._record(lease, event_id, "pending", status, error)
        if attempts >= max_attempts:
            self._end(lease, event_id)

    def record_absence(
        self,
        lease: WebhookLease,
        event_id: int,
        status: int | None,
        error: str,
        max_attempts: int,
    ) -> None:
        """Record that the receiver does not answer, or answers that it cannot accept any event."""
        failures = self._write(lease, failures=_TABLE.c.failures + 1)
        attempts = self._record(lease, event_id, "pending", status, error)
        if failures >= max_attempts:
            self.disable(lease, f"{failures} attempts in a row have failed: {error}")
        elif attempts >= max_attempts:  # others have succeeded in between
            self._end(lease, event_id)
        self._write(lease, retry_at=now() + _pause(failures))

    def disable(self, lease: WebhookLease, reason: str) -> None:
        """Stop the webhook until a person enables it; its deliveries wait."""
        webhook = lease.webhook
        reason = reason[:_MAX_ERROR_LENGTH]
        self._write(lease, enabled=False, reason=reason)
        Audit(self._connection).record(
            "worker", "disable_webhook", webhook.model, webhook.id, reason
        )
        data = {"webhook": webhook.id, "reason": reason}
        Events(self._connection).record("webhook.disabled", webhook.model, data)

    def _lock(self, webhook_id: str) -> None:
        """Lock a webhook before its deliveries, as a worker does; otherwise both may deadlock."""
        statement = select(_TABLE.c.id).where(_TABLE.c.id == webhook_id).with_for_update()
        self._connection.execute(statement)

    def _due(self, webhook: Webhook) -> list[DueDelivery]:
        events = tables.events
        statement = (
            select(events, _DELIVERY.c.attempts)
            .join(events, events.c.id == _DELIVERY.c.event_id)
            .where(_DELIVERY.c.webhook_id == webhook.id, _DUE)
            .order_by(_DELIVERY.c.attempts, events.c.id)
            .limit(_MAX_DUE)
        )
        return self._read(DueDelivery.of, statement)

    def _add_deliveries(self, webhook: Webhook, position: int) -> None:
        queries = Events(self._connection)
        last = queries.last()
        page = queries.page(
            _MAX_EVENTS,
            after=position,
            before=last + 1,  # later events, committed since, belong to the next call
            models=None if webhook.model is None else [webhook.model],
            types=webhook.types or None,
        )
        position = page[-1].id if len(page) == _MAX_EVENTS else last
        # A receiver would take past events for present ones.
        current = [event for event in page if not event.data.get("replayed")]
        if current:
            values = {"webhook_id": webhook.id, "state": "pending", "attempts": 0, "error": ""}
            statement = insert(_DELIVERY).values(created_at=now(), next_attempt_at=now())
            self._connection.execute(
                statement, [{**values, "event_id": event.id} for event in current]
            )
        self._execute(update(_TABLE).where(_TABLE.c.id == webhook.id).values(position=position))

    def _record(
        self, lease: WebhookLease, event_id: int, state: str, status: int | None, error: str
    ) -> int:
        """Write the outcome of an attempt; return the number of attempts."""
        (delivery,) = (item for item in lease.due if item.event.id == event_id)
        attempts = delivery.attempts + 1
        self._connection.execute(
            update(_DELIVERY)
            .where(_DELIVERY.c.webhook_id == lease.webhook.id, _DELIVERY.c.event_id == event_id)
            .values(
                state=state,
                attempts=attempts,
                status=status,
                error=error[:_MAX_ERROR_LENGTH],
                attempted_at=now(),
                next_attempt_at=now() + _pause(attempts),
            )
        )
        return attempts

    def _end(self, lease: WebhookLease, event_id: int) -> None:
        self._connection.execute(
            update(_DELIVERY)
            .where(_DELIVERY.c.webhook_id == lease.webhook.id, _DELIVERY.c.event_id == event_id)
            .values(state="dead")
        )

    def _write(self, lease: WebhookLease, **values: Any) -> int:
        """Change the leased webhook; return its failures in a row."""
        failures = self._connection.scalar(
            update(_TABLE)
            .where(_TABLE.c.id == lease.webhook.id, _TABLE.c.fence == lease.fence)
            .values(**values)
            .returning(_TABLE.c.failures)
        )
        if failures is None:
            raise FencedError(
                f"webhook {lease.webhook.id} was deleted or claimed by another worker"
            )
        return int(failures)


def _webhook(*, previous_secrets: list[Any] | None, **row: Any) -> Webhook:
    until = max((until for _, until in previous_secrets or ()), default=None)
    return Webhook(**row, previous_secrets_until=until)


def _valid(previous: list[Any] | None, at: float) -> list[Any]:
    """Return the previous secrets that have not ended."""
    return [[secret, until] for secret, until in previous or () if until > at]


_DUE = and_(_IS_PENDING, _DELIVERY.c.next_attempt_at <= now())


def _is_due() -> ColumnElement[bool]:
    last = select(tables.event_sequence.c.last).scalar_subquery()
    pending = exists().where(_DELIVERY.c.webhook_id == _TABLE.c.id, _DUE)
    return and_(
        _TABLE.c.enabled,
        or_(_TABLE.c.retry_at.is_(None), _TABLE.c.retry_at <= now()),
        or_(_TABLE.c.lease_expires.is_(None), _TABLE.c.lease_expires <= now()),
        or_(_TABLE.c.position < last, pending),
    )


def _pause(attempts: int) -> float:
    """Return the seconds until the next attempt; random, so that receivers are not flooded."""
    bound = min(_MAX_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 4.0 ** min(attempts - 1, 20))
    return random.uniform(0.8, 1.2) * bound  # noqa: S311  (no secret)
