"""What is kept while there is room for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

__all__ = ["Bounded", "Sized"]


class Sized(Protocol):
    """What can be kept."""

    #: Bytes.
    size: int
    #: Set by whoever uses it; cleared here.
    used: bool


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class Bounded(Generic[K, V]):
    """Values of at most `most_bytes` together; those that are not used go first.

    A use only sets a flag, which costs a request nothing and takes no lock. Whoever makes room
    passes over flagged values once, clearing the flag: the second chance of Corbató's clock (A
    paging experiment with the Multics system, 1968), which comes close to dropping the value that
    was used longest ago. Writers hold a lock of their own.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: OrderedDict[K, V] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value, or None."""
        return self._values.get(key)

    def put(self, key: K, value: V) -> V:
        """Keep `value`, unless there is one under `key`; return the one that is kept."""
        kept = self._values.get(key)
        if kept is None:
            kept = self._values[key] = value
            self.size += value.size
        return kept

    def shrink(self, keep: V) -> list[V]:
        """Drop values other than `keep` until the rest fits; return what was dropped."""
        dropped = []
        while self.size > self._most_bytes and len(self._values) > 1:
            key, value = next(iter(self._values.items()))
            if value.used or value is keep:
                value.used = False
                self._values.move_to_end(key)
            else:
                del self._values[key]
                self.size -= value.size
                dropped.append(value)
        return dropped
