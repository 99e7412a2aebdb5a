"""Paired comparison of two predictions over a stream of batches, in constant memory.

Legend: N rows, K classes, G groups of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.paired import GROUPS, Change, change_of, have_intervals
from recalib.metrics.predictions import Predictions


@dataclass(frozen=True)
class PairedMetrics:
    """Metrics of two predictions of the same rows, and how they change."""

    rows: int
    before: Evaluation[Estimate]
    after: Evaluation[Estimate]
    #: Empty for fewer than two rows.
    changes: dict[str, Change]
    #: Rows whose predicted class changes, and those of them that become right and wrong.
    moved: int
    righted: int
    wronged: int


class StreamingChanges:
    """The states from which `paired_changes` follows: one evaluation for each of G groups.

    Rows are dealt to the groups in random order, 20 at a time, so groups of a sorted file are
    alike.

    Parameters
    ----------
    classes: K.
    seed: of the random order; parts of a data set have different ones.
    """

    def __init__(self, classes: int, seed: int = 0) -> None:
        self.classes = classes
        self._rng = np.random.default_rng(seed)
        self._before, self._after = (
            [StreamingEvaluation(classes) for _ in range(GROUPS)] for _ in range(2)
        )
        self._moved = self._righted = self._wronged = 0

    def add(self, before: Predictions, after: Predictions) -> None:
        """Add two predictions of the same rows with the same labels."""
        for number, rows in enumerate(self._groups(len(before))):
            if len(rows):
                self._before[number].add_predictions(before.take(rows))
                self._after[number].add_predictions(after.take(rows))
        moved = before.predicted != after.predicted
        self._moved += int(np.count_nonzero(moved))
        self._righted += int(np.count_nonzero(moved & after.correct))
        self._wronged += int(np.count_nonzero(moved & before.correct))

    def merge(self, other: StreamingChanges) -> StreamingChanges:
        """Return the states of the rows of both; neither changes."""
        merged = StreamingChanges(self.classes)
        for name in ("_before", "_after"):
            pairs = zip(getattr(self, name), getattr(other, name), strict=True)
            setattr(merged, name, [first.merge(second) for first, second in pairs])
        for name in ("_moved", "_righted", "_wronged"):
            setattr(merged, name, getattr(self, name) + getattr(other, name))
        return merged

    def finish(self, level: float = 0.95) -> PairedMetrics:
        """Return the metrics and their changes, with intervals; see `paired_changes`."""
        before, after = (
            groups[0].merge(*groups[1:]).finish(level) for groups in (self._before, self._after)
        )
        rows = [group.rows for group in self._before]
        changes = {}
        if max(rows) < sum(rows):  # some rows remain without any group
            filled = [number for number in range(GROUPS) if rows[number]]
            replicates = [
                [self._without(groups, number) for number in filled]
                for groups in (self._before, self._after)
            ]
            changes = {
                name: change_of(
                    name,
                    (before[name], after[name]),
                    np.array([[values[name] for values in side] for side in replicates]),
                    level,
                )
                for name in after
                if have_intervals(name, before, after)
                and all(name in values for side in replicates for values in side)
            }
        return PairedMetrics(
            sum(rows), before, after, changes, self._moved, self._righted, self._wronged
        )

    def _groups(self, count: int) -> list[NDArray[np.intp]]:
        """Return the rows of each group, of a batch."""
        order = np.tile(np.arange(GROUPS), (-(-count // GROUPS), 1))
        groups = self._rng.permuted(order, axis=1).ravel()[:count]
        return [np.flatnonzero(groups == number) for number in range(GROUPS)]

    @staticmethod
    def _without(groups: list[StreamingEvaluation], number: int) -> dict[str, float]:
        first, *others = (group for index, group in enumerate(groups) if index != number)
        return {name: item.value for name, item in first.merge(*others).finish().items()}
