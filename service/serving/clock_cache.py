"""A cache with a size limit in bytes and second-chance (clock) eviction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """A value that the cache can hold."""

    #: Bytes.
    size: int
    #: Set by readers on each use; cleared by the cache.
    used: bool


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class ClockCache(Generic[K, V]):
    """Values of at most `max_bytes` in total; values that are not used are evicted first.

    A use only sets a flag and takes no lock. Eviction skips a flagged value once and clears its
    flag: the second chance of Corbató's clock (A paging experiment with the Multics system, 1968),
    which approximates least-recently-used. The caller serialises writers with a lock.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[K, V] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value, or None."""
        return self._values.get(key)

    def put(self, key: K, value: V) -> V:
        """Store `value` unless `key` has a value; return the stored value."""
        stored = self._values.get(key)
        if stored is None:
            stored = self._values[key] = value
            self.size += value.size
        return stored

    def shrink(self, keep: V) -> list[V]:
        """Evict values other than `keep` until the rest fits; return the evicted values."""
        evicted = []
        while self.size > self._max_bytes and len(self._values) > 1:
            key, value = next(iter(self._values.items()))
            if value.used or value is keep:
                value.used = False
                self._values.move_to_end(key)
            else:
                del self._values[key]
                self.size -= value.size
                evicted.append(value)
        return evicted
