"""Live predictions with their labels, in cohorts, as monitoring assesses them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from recalib.drift import ClassTraffic, Cohort
from recalib.drift.target import values_of_predicted_class
from recalib.registry import Assessment, LabelColumns, Model, Registry, Transaction
from training.assessment import Assessor, segment_names
from training.sampled_rows import read_class_rows, read_promised

#: Limits of a transaction: cohorts, to keep it short, and labels, to bound memory after a long
#: pause.
_MAX_COHORTS, _MAX_LABELS = 100, 200_000


@dataclass(frozen=True)
class LiveCohort:
    """The predictions of a time interval, by segment name."""

    start: float
    end: float
    parts: dict[str, Cohort]
    #: Labels of all segments that arrived in time.
    labels: LabelColumns
    #: Number of labels that arrived too late to count.
    late: int
    #: Predictions of all segments by predicted class; None without watched classes.
    class_traffic: ClassTraffic | None

    @property
    def label_share(self) -> float:
        """The share of the predictions of all segments that have a label in time, above 0.

        Without labels it is that of one: a label may be written while its cohort is read.
        """
        traffic = sum(int(np.sum(part.traffic)) for part in self.parts.values())
        labels = max(len(self.labels.label), 1)
        return labels / max(traffic, labels)


@dataclass(frozen=True)
class LiveCohorts:
    """The cohorts of a version at a point in time, and what assesses them."""

    model: Model
    version: int
    assessor: Assessor
    now: float

    def read(self, tx: Transaction, through: float) -> Iterator[LiveCohort]:
        """Yield the non-empty cohorts after `through` that have matured."""
        monitoring = self.model.monitoring
        length, matured = monitoring.cohort_seconds, self.now - monitoring.maturity_seconds
        read = cohorts = 0
        while read < _MAX_LABELS and cohorts < _MAX_COHORTS:
            firsts = (
                tx.labels.first(self.model, self.version, through),
                tx.traffic.first(self.model, self.version, through),
            )
            starts = [first for first in firsts if first is not None]
            if not starts:
                return
            # The grid is common to all versions. After a change of its width, the first cohort may
            # be shorter.
            grid = math.floor(min(starts) / length) * length
            start, end = max(grid, through), grid + length
            if end > matured:
                return
            cohort = self._cohort(tx, start, end)
            yield cohort
            cohorts += 1
            read += sum(len(np.asarray(part.correct)) for part in cohort.parts.values())
            through = end

    def add(self, registry: Registry, cohort: LiveCohort, served: Any) -> Assessment:
        """Add a cohort to the monitor; return the state after it."""
        class_rows, span = None, (cohort.start, cohort.end)
        where = registry, self.model, self.version
        if self.assessor.classes:
            class_rows = read_class_rows(*where, cohort.labels, *span, self.assessor.classes)
        promises, share = self.assessor.promises, cohort.label_share
        promised = read_promised(*where, *span, promises, label_share=share)
        traffic, times = cohort.class_traffic, {"now": self.now, "served": served}
        return self.assessor.add(*span, cohort.parts, class_rows, traffic, promised, **times)

    def served_counts(self, tx: Transaction) -> Any:
        """Return counts (B,) of recent predictions by bin, or None if there are none."""
        monitoring = self.model.monitoring
        since = self.now - max(monitoring.cohort_seconds, monitoring.maturity_seconds)
        counts = np.zeros(len(self.assessor.edges) + 1, np.int64)
        for bucket in tx.traffic.between(self.model, self.version, since, self.now + 1e6):
            counts[bucket.bin] += bucket.predictions
        return counts if counts.any() else None

    def _cohort(self, tx: Transaction, start: float, end: float) -> LiveCohort:
        monitoring = self.model.monitoring
        labels = tx.labels.columns(self.model, self.version, start, end)
        delays = labels.labelled_at - labels.predicted_at
        timely = delays <= monitoring.maturity_seconds
        names = segment_names(monitoring)
        # Of each segment: predictions, those of them with a known confidence, and Σp, by bin.
        shape = (len(names), len(self.assessor.edges) + 1)
        traffic, known = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        confidence = np.zeros(shape)
        for bucket in tx.traffic.between(self.model, self.version, start, end):
            at = bucket.segment, bucket.bin
            traffic[at] += bucket.predictions
            known[at] += bucket.confidence_count
            confidence[at] += bucket.confidence_sum
        probabilities, outcomes = (
            values_of_predicted_class(values, labels.predicted, self.assessor.target)
            for values in (labels.confidence, labels.correct)
        )
        parts = {}
        for number, name in enumerate(names):
            selected = timely & (labels.segment == number)
            parts[name] = Cohort(
                traffic[number],
                probabilities[selected],
                outcomes[selected],
                delays[selected],
                labels.predicted_at[selected],
                confidence[number],
                known[number],
                labels.group[selected].astype(np.int64),
            )
        late = int(np.count_nonzero(~timely))
        labels = labels.select(timely)
        class_traffic = None
        if self.assessor.classes:
            class_traffic = self._class_traffic(tx, start, end, labels, int(traffic.sum()))
        return LiveCohort(start, end, parts, labels, late, class_traffic)

    def _class_traffic(
        self, tx: Transaction, start: float, end: float, labels: LabelColumns, total: int
    ) -> ClassTraffic:
        """Return predictions by predicted class; `total` is their number with all classes."""
        positions = {index: position for position, index in enumerate(self.assessor.classes)}
        counts, errors = np.zeros(len(positions), np.int64), np.zeros(len(positions))
        for bucket in tx.class_traffic.between(self.model, self.version, start, end):
            position = positions.get(bucket.predicted)
            if position is not None:
                counts[position] += bucket.predictions
                errors[position] += bucket.max_error_sum
        columns = labels.predicted, labels.correct, labels.confidence
        return ClassTraffic.from_rows(self.assessor.classes, counts, errors, total, *columns)
