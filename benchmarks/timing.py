"""Timing on a shared, noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A ratio, and its goal."""

    what: str
    ratio: float
    limit: float
    #: Whether the limit is a maximum or a minimum.
    at_most: bool
    detail: str = ""

    @property
    def met(self) -> bool:
        return self.ratio <= self.limit if self.at_most else self.ratio >= self.limit

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        verdict = "met" if self.met else "MISSED"
        return f"{self.what}: {self.ratio:.2f} ({sign} {self.limit:g}: {verdict}){self.detail}"


def best_of(act: Callable[[], object], times: int) -> float:
    """Return the shortest of several runs, in seconds: the least disturbed run."""
    return min(interleaved({"": act}, times)[""])


def interleaved(
    acts: dict[str, Callable[[], object]],
    times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Run several functions in turns, so that a slow period of the machine affects all.

    `clock` returns seconds; `time.thread_time`, for a single thread, excludes the time of other
    processes.
    """
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(times):
        for name, act in acts.items():
            started = clock()
            act()
            seconds[name].append(clock() - started)
    return seconds
