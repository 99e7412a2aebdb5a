"""Deliver events to webhooks, beside the jobs of a worker process.

An event loop in a thread claims webhooks with due deliveries, a few at a time, and sends the events
of each one after the other. Every request has a time limit as a whole, goes to an address that was
checked (`recalib.webhooks.targets`), follows no redirect, uses no proxy, and reads a bounded part
of the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from recalib.errors import FencedError, InputError, UnavailableError
from recalib.registry import DueDelivery, Registry, WebhookLease
from recalib.webhooks import AllowedTargets, check_url, message_of, resolve, signature_headers

if TYPE_CHECKING:
    import httpx2

_log = logging.getLogger(__name__)

_LEASE_SECONDS = 120.0
#: A batch ends after this time, well before the lease.
_BATCH_SECONDS = 60.0
#: Time for name resolution, connection, request and answer.
_REQUEST_SECONDS = 10.0
#: Webhooks that one worker serves at once.
_MAX_CONCURRENT = 8
#: Bytes of an answer that are read; a failure shows the first characters.
_MAX_ANSWER_BYTES, _MAX_SHOWN = 4_096, 200
#: Addresses of a name that are tried.
_MAX_ADDRESSES = 3
#: Pause while the registry is unreachable.
_OUTAGE_SECONDS = 15.0
#: How long the end of the worker waits for requests in progress.
_STOP_SECONDS = 5.0
#: Statuses by which a receiver says that it cannot accept any message now.
_ABSENT_STATUSES = frozenset({408, 425, 429})
_GONE = 410


@dataclass(frozen=True)
class _Answer:
    """The answer of a receiver; `status` is None without one."""

    status: int | None
    error: str

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_absent(self) -> bool:
        return self.status is None or self.status >= 500 or self.status in _ABSENT_STATUSES


@dataclass(eq=False)
class WebhookSender:
    """Sends due deliveries.

    Parameters
    ----------
    allowed: targets that are not public addresses.
    max_attempts: attempts after which a delivery is dead, or a webhook disabled.
    """

    registry: Registry
    allowed: AllowedTargets
    max_attempts: int

    async def run(self, stop: threading.Event, poll_seconds: float) -> None:
        """Deliver until `stop` is set."""
        tasks: set[asyncio.Task[None]] = set()
        is_away = False
        while not stop.is_set():
            # One warning for each outage.
            level, lease, is_away = logging.DEBUG if is_away else logging.WARNING, None, True
            with _logged_failures(level):
                if len(tasks) < _MAX_CONCURRENT:
                    lease = await asyncio.to_thread(self.claim)
                is_away = False
            if lease is None:
                await asyncio.to_thread(stop.wait, _OUTAGE_SECONDS if is_away else poll_seconds)
                continue
            task = asyncio.create_task(self._deliver_logged(lease, stop))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)

    def claim(self) -> WebhookLease | None:
        """Claim a webhook with due deliveries, or return None."""
        with self.registry.reading() as tx:  # cheaper than a transaction that writes
            if not tx.webhooks.are_due():
                return None
        with self.registry.transaction() as tx:
            return tx.webhooks.claim(_LEASE_SECONDS)

    async def deliver(self, lease: WebhookLease, stop: threading.Event) -> None:
        """Send the deliveries of a webhook until one fails because the receiver is away."""
        began = time.monotonic()
        try:
            for delivery in lease.due:
                if stop.is_set() or time.monotonic() - began > _BATCH_SECONDS:
                    break
                answer = await self._send(lease, delivery)
                await asyncio.to_thread(self._record, lease, delivery, answer)
                if answer.is_absent or answer.status == _GONE:
                    break
        finally:
            await asyncio.to_thread(self._release, lease)

    async def _deliver_logged(self, lease: WebhookLease, stop: threading.Event) -> None:
        with _logged_failures():
            await self.deliver(lease, stop)

    async def _send(self, lease: WebhookLease, delivery: DueDelivery) -> _Answer:
        webhook, event = lease.webhook, delivery.event
        body = message_of(event, webhook.format)
        headers = {
            "content-type": "application/json",
            "user-agent": "recalib-webhooks",
            **signature_headers(lease.secrets, f"event-{event.id}", int(time.time()), body),
        }
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                parts = check_url(webhook.url, self.allowed)
                addresses = await asyncio.to_thread(resolve, parts, self.allowed)
                return await _post(parts, addresses[:_MAX_ADDRESSES], headers, body)
        except InputError as error:
            return _Answer(None, str(error))
        except TimeoutError:
            return _Answer(None, f"no answer within {_REQUEST_SECONDS:g} seconds")

    def _record(self, lease: WebhookLease, delivery: DueDelivery, answer: _Answer) -> None:
        event_id, webhook = delivery.event.id, lease.webhook
        status, error, attempts = answer.status, answer.error, self.max_attempts
        with self.registry.transaction() as tx:
            if status is None or answer.is_absent:
                tx.webhooks.record_absence(lease, event_id, status, error, attempts)
            elif answer.is_accepted:
                tx.webhooks.record_success(lease, event_id, status)
            else:
                tx.webhooks.record_refusal(lease, event_id, status, error, attempts)
                if status == _GONE:
                    tx.webhooks.disable(lease, "the receiver has answered 410 Gone")
        if not answer.is_accepted:
            fields = {"action": "webhook_failed", "webhook": webhook.id, "event": event_id}
            _log.warning(
                "Webhook %s did not accept event %d: %s",
                webhook.id,
                event_id,
                answer.error,
                extra=fields,
            )

    def _release(self, lease: WebhookLease) -> None:
        with self.registry.transaction() as tx:
            tx.webhooks.release(lease)


@contextlib.contextmanager
def deliveries(
    registry: Registry, allowed: AllowedTargets, max_attempts: int, poll_seconds: float
) -> Iterator[None]:
    """Deliver to webhooks in a thread while the block runs."""
    stop = threading.Event()
    sender = WebhookSender(registry, allowed, max_attempts)
    thread = threading.Thread(
        target=lambda: asyncio.run(sender.run(stop, poll_seconds)),
        name="webhooks",
        daemon=True,  # must not keep a failing worker from exiting
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2 * _STOP_SECONDS)


async def _post(
    parts: SplitResult, addresses: list[str], headers: dict[str, str], body: bytes
) -> _Answer:
    """Send a message to one of these addresses of the URL's host."""
    import httpx2

    answer = _Answer(None, "no address")
    # One client for each message: a connection that is kept could be to an earlier address.
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=False) as client:
        for address in addresses:
            request = _request(client, parts, address, headers, body)
            try:
                response = await client.send(request, stream=True)
                try:
                    return await _read(response)
                finally:
                    await response.aclose()
            except httpx2.ConnectError as error:  # nothing was sent
                answer = _Answer(None, f"no connection: {error}")
            except httpx2.HTTPError as error:
                return _Answer(None, f"no answer: {error or type(error).__name__}")
    return answer


def _request(
    client: httpx2.AsyncClient,
    parts: SplitResult,
    address: str,
    headers: dict[str, str],
    body: bytes,
) -> httpx2.Request:
    """Return a request that connects to `address`, with the host of the URL in Host and TLS."""
    port = "" if parts.port is None else f":{parts.port}"
    literal = f"[{address}]" if ":" in address else address
    return client.build_request(
        "POST",
        parts._replace(netloc=f"{literal}{port}").geturl(),
        headers={**headers, "host": parts.netloc},
        content=body,
        timeout=_REQUEST_SECONDS,
        extensions={"sni_hostname": parts.hostname},
    )


async def _read(response: httpx2.Response) -> _Answer:
    status = response.status_code
    if 200 <= status < 300:
        return _Answer(status, "")
    if 300 <= status < 400:
        return _Answer(status, f"status {status}: redirects are not followed")
    content = b""
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) >= _MAX_ANSWER_BYTES:
            break
    text = " ".join(content[:_MAX_SHOWN].decode(errors="replace").split())
    return _Answer(status, f"status {status}: {text}" if text else f"status {status}")


@contextlib.contextmanager
def _logged_failures(level: int = logging.WARNING) -> Iterator[None]:
    """Log an error of the block; what was not recorded is sent again.

    Parameters
    ----------
    level: of the line that says that the registry is away.
    """
    try:
        yield
    except FencedError as error:
        _log.info("%s", error, extra={"action": "webhook_lost"})
    except UnavailableError as error:
        _log.log(level, "Webhooks wait: %s", error, extra={"action": "webhooks_wait"})
    except Exception:  # other webhooks must still be served
        _log.exception("A webhook failed.", extra={"action": "webhook_broken"})
