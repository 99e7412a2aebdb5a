"""A sliding window over the cohorts of a stream, bounded by labels and by age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

#: Most entries: memory does not grow with the number of cohorts.
_MAX_ENTRIES = 24
#: Times with and without labels, or with far fewer, keep their ends better: the span of a pair
#: whose labels per second differ by more than this factor counts this many times.
_FACTOR = 3


class Sums(Protocol):
    """Sums over the predictions of one or more cohorts."""

    @property
    def size(self) -> float:
        """The number of labels, where a group counts once."""

    def merge(self, other: Self) -> Self:
        """Return the sums of both."""

    def to_dict(self) -> dict[str, list[float]]:
        """Return everything as JSON."""


_Sums = TypeVar("_Sums", bound=Sums)


@dataclass
class SlidingWindow(Generic[_Sums]):
    """The smallest number of latest cohorts that hold `labels` labels.

    Above 24 cohorts, the two neighbours with the shortest joint time span are merged. The window
    depends on the order of the cohorts: windows cannot be merged, only the sums in them.
    """

    empty: _Sums
    labels: int
    _entries: list[tuple[float, float, _Sums]] = field(default_factory=list)

    def add(self, start: float, end: float, sums: _Sums) -> None:
        """Add a cohort; cohorts are added in order of time."""
        self._entries.append((start, end, sums))
        total = sum(entry.size for _, _, entry in self._entries)
        while total - (first := self._entries[0][2].size) >= self.labels:
            total -= first
            del self._entries[0]
        if len(self._entries) > _MAX_ENTRIES:
            self._merge()

    @property
    def entries(self) -> list[tuple[float, float, _Sums]]:
        """Start, end and sums of each entry, in order of time."""
        return self._entries

    def since(self, oldest: float) -> _Sums:
        """Return the sums of the cohorts that end after `oldest`."""
        sums = self.empty
        for _, end, cohort in self._entries:
            sums = sums.merge(cohort) if end > oldest else sums
        return sums

    def state(self) -> list[dict[str, Any]]:
        """Return the entries as JSON."""
        return [
            {"start": start, "end": end, "sums": sums.to_dict()}
            for start, end, sums in self._entries
        ]

    def restore(
        self, state: list[dict[str, Any]], read: Callable[[Mapping[str, Any]], _Sums]
    ) -> None:
        """Restore the entries from what `state` returned.

        Parameters
        ----------
        read: return sums from what `to_dict` returned.
        """
        self._entries = [(entry["start"], entry["end"], read(entry["sums"])) for entry in state]

    def _merge(self) -> None:
        densities = [sums.size / (end - start) for start, end, sums in self._entries]
        costs = [
            (after[1] - before[0]) * (_FACTOR if max(pair) > _FACTOR * min(pair) else 1)
            for before, after, pair in zip(
                self._entries, self._entries[1:], pairwise(densities), strict=False
            )
        ]
        at = int(np.argmin(costs))
        (start, _, first), (_, end, second) = self._entries[at : at + 2]
        self._entries[at : at + 2] = [(start, end, first.merge(second))]
