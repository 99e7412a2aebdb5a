"""Memory for the bodies of requests, of a server process.

A body counts from its first byte until its request ends. When all memory is in use, the caller with
the most bytes makes room: the oldest of its incomplete bodies is given up. A caller is a key, or an
IP address where no keys are required. Many slow bodies of one caller therefore do not stop others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from recalib.errors import UnavailableError
from service.metrics import LIMITED

MEMORY_IN_USE = "the memory for request bodies is in use"
#: Memory of a received part besides its bytes.
_PART_BYTES = 64


class BodyBudget:
    """The memory of a server process; used by its event loop only.

    Parameters
    ----------
    max_bytes: of all bodies together.
    uncounted_bytes: of a body that does not count; the number of bodies is limited.
    """

    def __init__(self, max_bytes: int, uncounted_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.uncounted_bytes = uncounted_bytes
        self._used: Counter[str] = Counter()
        self._total = 0
        #: In the order in which they began.
        self._bodies: dict[Body, None] = {}

    def open(self, caller: str, evict: Callable[[], None] | None) -> Body:
        """Return the body of a request that begins.

        Parameters
        ----------
        evict: forgets the incomplete body; None: it cannot be given up.
        """
        body = Body(self, caller, evict)
        self._bodies[body] = None
        return body

    def _add(self, body: Body, size: int) -> None:
        body.size += size
        self._total += size
        self._used[body.caller] += size
        if not self._used[body.caller]:
            del self._used[body.caller]

    def _make_room(self, body: Body) -> None:
        while self._total > self._max_bytes:
            victim = self._victim()
            LIMITED.labels("memory").inc()
            if victim is None or victim is body:
                raise UnavailableError(MEMORY_IN_USE)
            self._remove(victim)
            victim.evict()

    def _victim(self) -> Body | None:
        caller, _ = self._used.most_common(1)[0]
        for body in self._bodies:
            if body.caller == caller and body.can_be_evicted:
                return body
        return None

    def _remove(self, body: Body) -> None:
        self._bodies.pop(body, None)
        self._add(body, -body.size)


class Body:
    """The body of one request."""

    __slots__ = ("_budget", "_evict", "caller", "size")

    def __init__(self, budget: BodyBudget, caller: str, evict: Callable[[], None] | None) -> None:
        self._budget = budget
        self._evict = evict
        self.caller = caller
        #: Bytes that count.
        self.size = 0

    @property
    def can_be_evicted(self) -> bool:
        """Whether the body is incomplete and has bytes."""
        return self._evict is not None and self.size > 0

    def receive(self, size: int) -> None:
        """Count a part of `size` bytes; raise `UnavailableError` if there is no memory for it."""
        self._budget._add(self, size + _PART_BYTES)
        self._budget._make_room(self)

    def hold(self, size: int) -> None:
        """Count a complete message of `size` bytes in the place of the one before."""
        self._budget._add(self, (size if size > self._budget.uncounted_bytes else 0) - self.size)
        self._budget._make_room(self)

    def complete(self) -> None:
        """Record that all parts have been received."""
        self._evict = None

    def evict(self) -> None:
        """Forget the incomplete body."""
        if self._evict is not None:
            self._evict()

    def release(self) -> None:
        """End the request."""
        self._budget._remove(self)
