"""The last cohorts of a stream: as many as hold enough labels, and none that are too old."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.drift.calibration_sums import CalibrationSums

__all__ = ["SlidingWindow"]

#: What is kept, however many cohorts come: what is left out of a window is a share of it at most.
_MOST = 24


@dataclass
class SlidingWindow:
    """A window that slides by cohorts: the fewest of the latest that hold `labels` labels.

    Cohorts that are too many are merged with a neighbour, those of the shortest time first.
    """

    edges: NDArray[np.float64]
    labels: int
    _kept: list[tuple[float, float, CalibrationSums]] = field(default_factory=list)

    def add(self, start: float, end: float, sums: CalibrationSums) -> None:
        """Take a cohort, after all that were taken before."""
        self._kept.append((start, end, sums))
        held = sum(int(one.labelled.sum()) for _, _, one in self._kept)
        while held - (first := int(self._kept[0][2].labelled.sum())) >= self.labels:
            held -= first
            del self._kept[0]
        if len(self._kept) > _MOST:
            self._merge()

    def since(self, oldest: float) -> tuple[float | None, float | None, CalibrationSums]:
        """Return first and last time, and sums, of cohorts that end after `oldest`."""
        sums, start, end = CalibrationSums.empty(self.edges), None, None
        for begun, ended, one in self._kept:
            if ended > oldest:
                sums.merge(one)
                start, end = begun if start is None else start, ended
        return start, end, sums

    def state(self) -> list[dict[str, Any]]:
        """Return what is kept, as JSON."""
        return [
            {"start": start, "end": end, "sums": sums.to_dict()} for start, end, sums in self._kept
        ]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Take up what `state` returned."""
        self._kept = [
            (one["start"], one["end"], CalibrationSums.from_dict(one["sums"])) for one in state
        ]

    def _merge(self) -> None:
        spans = [
            after[1] - before[0] for before, after in zip(self._kept, self._kept[1:], strict=False)
        ]
        at = int(np.argmin(spans))
        (start, _, first), (_, end, second) = self._kept[at : at + 2]
        both = CalibrationSums.empty(self.edges)
        both.merge(first)
        both.merge(second)
        self._kept[at : at + 2] = [(start, end, both)]
