"""A calibration test with the prediction times of its onset and of its rejection."""

from __future__ import annotations

from typing import Any

import numpy as np

from recalib.core.arrays import Numbers
from recalib.drift.bettors import default_bettors
from recalib.drift.calibration_test import STATE_VERSION, CalibrationTest
from recalib.drift.row_groups import Groups, arrange_units
from recalib.drift.target import PROMISES, Target


class TimedTest:
    """A `CalibrationTest` of cohorts, which have times."""

    def __init__(self, alpha: float, tolerance: float, target: Target = "top_label") -> None:
        at_least = target in PROMISES.values()
        self.test = CalibrationTest(alpha, tolerance, default_bettors(target), at_least)
        #: The prediction time since which each bettor has won.
        self._onsets: list[float] = []
        #: The prediction time at which the test first rejected.
        self.rejected_time: float | None = None

    @property
    def onset(self) -> float | None:
        """The prediction time since which the evidence has grown, None without labels."""
        return self._onsets[self.test.leader] if self._onsets else None

    def add(
        self,
        start: float,
        end: float,
        confidences: Numbers,
        correct: Numbers,
        times: Numbers,
        groups: Groups,
    ) -> None:
        """Add the rows of a cohort of predictions made from `start` until before `end`.

        Parameters
        ----------
        confidences, correct, times: (n,) each, checked, in the order of the times.
        groups: numbers of groups, (n,), 0 for none. A group bets at the time of its first row.
        """
        before, rejected = self.test.labels, self.test.rejected_at
        order, sizes = arrange_units(groups)
        self.test.update(confidences[order], correct[order], sizes)
        if sizes is not None:
            times = times[order[np.cumsum(sizes) - sizes]]
        if rejected is None and self.test.rejected_at is not None:
            self.rejected_time = float(times[self.test.rejected_at - before - 1])
        if self.test.labels > before:
            earlier = self._onsets or [start] * len(self.test.onsets)
            # A bettor that was at its lowest in this cohort wins from the next row on. Rows
            # without a time have the end of the cohort; its start is then the safe onset.
            onsets = np.where(times < end, times, start)
            self._onsets = [
                float(onsets[label - before]) if label >= before else time
                for label, time in zip(self.test.onsets, earlier, strict=True)
            ]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without the options."""
        return {
            "test": self.test.state(),
            "onsets": self._onsets,
            "rejected_time": self.rejected_time,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the options must be the same."""
        self.test.restore(state["test"])
        self._onsets = list(state["onsets"])
        saved = state["test"]
        if self._onsets and saved.get("version", 1) != STATE_VERSION:
            # All bettors continue from the onset of the leader of the earlier version.
            leader = int(np.argmax(np.subtract(saved["won"], saved["lowest"])))
            self._onsets = [self._onsets[leader]] * len(self.test.onsets)
        self.rejected_time = state["rejected_time"]
