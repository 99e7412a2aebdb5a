"""An operation of the client, written once: a plan that says what to ask, and does no I/O.

A plan is a generator. It yields steps, a `Request` or a `Pause`; what came of a step is sent back
into it, or thrown where there was no answer; it returns the operation's result. `Client` takes
the steps, `AsyncClient` awaits them, and neither knows what a model or a calibrator is.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from recalib.errors import InputError

__all__ = ["Answer", "Deadline", "Pause", "Plan", "Request", "Retries", "Session", "Step", "Stream"]

T = TypeVar("T")


class Stream(Protocol):
    """A request's body that is too large to be held: `size` bytes in pieces."""

    size: int

    def pieces(self) -> Iterator[bytes]:
        """Yield the body from its beginning; may be called again, for another attempt."""

    def passed(self, sent: int) -> None:
        """Hear that so many bytes of this attempt are on their way."""


@dataclass(frozen=True)
class Request:
    """One HTTP request; `seconds` are what is left for it, None where it may take forever.

    Every request of a plan may be sent twice without doing more than once: its verb is idempotent,
    or it carries an idempotency key, or it changes nothing.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Stream = b""
    seconds: float | None = None


@dataclass(frozen=True)
class Answer:
    """What the server answered, whole; header names in lower case."""

    request: Request
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Pause:
    """Some seconds in which nothing happens."""

    seconds: float


Step: TypeAlias = Request | Pause
Plan: TypeAlias = Generator[Step, Any, T]


@dataclass(frozen=True)
class Retries:
    """How often a request is sent until it is answered, and how long the pauses between are.

    The n-th pause is a random one of up to `first_pause` · 2ⁿ⁻¹ seconds, at most `longest_pause`,
    and at least what the server asks for in `Retry-After`. Random, so that many clients that lost
    one server do not come back to it all at once.
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
        """Yield the longest that each pause may be, in seconds: one fewer than attempts."""
        for n in range(self.attempts - 1):
            yield min(self.longest_pause, self.first_pause * 2.0 ** min(n, 60))


class Deadline:
    """When the time for something is over; never, where `seconds` is None."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds that are left, at least 0, or None."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def allows(self, seconds: float) -> bool:
        """Return whether there is time for more after so many seconds."""
        left = self.left()
        return left is None or seconds < left


@dataclass
class Session:
    """What plans know of the client that they are for.

    `most_rows` and `most_bytes` bound one request to calibrate, `most_labels` one that labels.
    They begin at a server's defaults, and shrink when a server says that it takes less.
    """

    url: str
    timeout: float
    retries: Retries
    most_rows: int = 100_000
    most_bytes: int = 16 << 20
    most_labels: int = 10_000
