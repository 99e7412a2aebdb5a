"""Building blocks of the client's operations: flows, which describe requests and do no I/O.

A flow is a generator, as an `auth_flow` of httpx is. It yields actions, each a `Request` or a
`Pause`. The driver performs an action and sends the response into the generator, or throws the
error. The generator returns the result of the operation. `Client` performs actions synchronously,
`AsyncClient` awaits them, so that each operation is written once.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from recalib.errors import InputError

T = TypeVar("T")


class Stream(Protocol):
    """A request body of `size` bytes that is sent in chunks, because it may not fit into memory."""

    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the body from its beginning; each attempt calls this again."""

    def on_sent(self, sent: int) -> None:
        """Report the number of bytes that this attempt has sent."""


class Sink(Protocol):
    """The destination of a response body that is received in chunks."""

    def start(self) -> None:
        """Discard the bytes of an earlier attempt."""

    def write(self, chunk: bytes) -> None:
        """Append a chunk of the body."""


@dataclass(frozen=True)
class Request:
    """One HTTP request; `seconds` is its timeout, None for no timeout.

    The body of a successful response goes to `sink`, if there is one.

    Every request of a flow can be repeated safely: its method is idempotent, or it has an
    idempotency key, or it changes nothing.
    """

    method: str
    path: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Stream = b""
    seconds: float | None = None
    sink: Sink | None = None


@dataclass(frozen=True)
class Response:
    """A complete HTTP response; header names are in lower case.

    `body` is empty if the sink of the request has received it.
    """

    request: Request
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Pause:
    """A pause of some seconds."""

    seconds: float


Action: TypeAlias = Request | Pause
Flow: TypeAlias = Generator[Action, Any, T]


@dataclass(frozen=True)
class Retries:
    """The number of attempts for a request, and the pauses between them.

    The n-th pause is uniform from 0 to `first_pause` · 2ⁿ⁻¹ seconds, at most `longest_pause`, and
    at least the `Retry-After` of the server. Pauses are random, so that many clients do not return
    to a restarted server at the same moment.

    Examples
    --------
    >>> from recalib.client import Retries
    >>> Retries(attempts=3).longest_pause
    10.0
    """

    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InputError("retries.attempts", found=f"{self.attempts}", accepted="at least 1")
        for name in ("first_pause", "longest_pause"):
            seconds = getattr(self, name)
            if not 0 <= seconds < float("inf"):
                found = f"{seconds}"
                raise InputError(f"retries.{name}", found=found, accepted="seconds of at least 0")

    def bounds(self) -> Iterator[float]:
        """Yield the upper bound of each pause in seconds; there is one pause less than attempts."""
        for n in range(self.attempts - 1):
            yield min(self.longest_pause, self.first_pause * 2.0 ** min(n, 60))


class Deadline:
    """A point in time after which an operation times out; never, if `seconds` is None."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Return the remaining seconds, at least 0, or None."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def allows(self, seconds: float) -> bool:
        """Return whether time remains after a pause of `seconds`."""
        remaining = self.remaining()
        return remaining is None or seconds < remaining


@dataclass
class Session:
    """The client's configuration, as flows use it.

    `max_rows` and `max_bytes` limit one calibrate request, `max_labels` one request with labels.
    They start at the defaults of a server, and shrink when a server rejects a request as too large.
    """

    url: str
    timeout: float
    retries: Retries
    max_rows: int = 100_000
    max_bytes: int = 16 << 20
    max_labels: int = 10_000
    #: Names of the classes by model, once they have been read: None for none, () without the right.
    class_names: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
