"""Assess one version, cohort by cohort: of live predictions, or of a log of the past."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import ArrayLike, NDArray

from recalib.core.card import Card
from recalib.core.watched_classes import watched_indices
from recalib.drift import (
    ClassRows,
    ClassTraffic,
    Cohort,
    Monitor,
    MonitorOptions,
    Status,
    spend_alpha,
)
from recalib.drift.reference_histogram import reference_edges, reference_target
from recalib.registry import Assessment, CohortRow, Model, MonitoringSettings
from recalib.replay.promises import monitored_promises, promises_of

#: Name of the rows outside all declared segments; no segment can have this name.
_REST = "(rest)"
#: Age in seconds at which cohorts and assessments are deleted.
KEEP_SECONDS = 90 * 86_400.0


class Assessor:
    """The monitor of a version, with the settings of its model.

    Parameters
    ----------
    number: of the test of the model, from 1.
    state: what `Monitor.state` returned; empty for a new test.
    """

    def __init__(
        self, model: Model, version: int, card: Card, number: int, state: Mapping[str, Any]
    ) -> None:
        self._model, self._version = model, version
        monitoring = model.monitoring
        #: Indices of the watched classes.
        self.classes: tuple[int, ...] = ()
        if monitoring.classes:
            self.classes = watched_indices(monitoring.classes, model.classes, model.labels)
        self.promises = promises_of(card)
        #: Inner edges (B - 1,) of the bins, and what is in them.
        self.edges: NDArray[Any] = reference_edges(card)
        self.target = reference_target(card)
        options = MonitorOptions(
            **{
                **monitoring.evidence_settings(),
                "alpha": spend_alpha(monitoring.alpha, number),
                "window_labels": max(monitoring.window_labels, monitoring.least_labels),
            },
            # The rest is a segment too.
            segments=len(monitoring.segments) + 1 if monitoring.segments else 0,
            classes=self.classes,
            target=self.target,
            **monitored_promises(card),
        )
        reference = None if card.confidences is None else card.confidences.counts
        self.monitor = Monitor(self.edges, reference, options, model.labels)
        if state:
            self.monitor.restore(state)
        #: After the last cohort that was added.
        self.status: Status | None = None

    def add(
        self,
        start: float,
        end: float,
        parts: Mapping[str, Cohort],
        class_rows: ClassRows | None,
        class_traffic: ClassTraffic | None,
        promised: Mapping[str, Cohort],
        *,
        now: float,
        served: ArrayLike | None = None,
    ) -> Assessment:
        """Add a matured cohort; return the state after it, at the time when it matured.

        Parameters
        ----------
        parts: the cohort of each segment; the next three are those of `Monitor.add` too.
        now: when the cohort is read, in seconds.
        served: counts (B,) of recent traffic.
        """
        self.monitor.add(start, end, parts, class_rows, class_traffic, promised)
        matured = end + self._model.monitoring.maturity_seconds
        self.status = status = self.monitor.assess(min(matured, now), served)
        return Assessment(
            version=self._version,
            started_at=start,
            ended_at=end,
            assessed_at=now,
            state=status.state,
            reason=status.reason,
            evidence=evidence_of(status),
        )

    def cohort_rows(
        self, start: float, end: float, parts: Mapping[str, Cohort]
    ) -> Iterator[CohortRow]:
        """Yield the sums of each segment that has predictions."""
        for number, name in enumerate(segment_names(self._model.monitoring)):
            sums = parts[name].sums(self.edges)
            if sums.traffic.any() or sums.labelled.any():
                yield CohortRow(start, end, number, sums.to_dict())


def segment_names(monitoring: MonitoringSettings) -> list[str]:
    """Return segment names by number; 0 is the rest, or all rows without declared segments."""
    return [_REST if monitoring.segments else "", *monitoring.segments]


def fixed_options(monitoring: MonitoringSettings) -> dict[str, Any]:
    """Return the settings whose change starts a new test."""
    options: dict[str, Any] = {
        "alpha": monitoring.alpha,
        "tolerance": monitoring.tolerance,
        "segments": len(monitoring.segments),
        "window_labels": max(monitoring.window_labels, monitoring.least_labels),
    }
    if monitoring.classes:
        options["classes"] = list(monitoring.classes)
    return options


def evidence_of(status: Status) -> dict[str, Any]:
    """Return the evidence of the segment that determines the state, as JSON."""
    owner = status.evidence if status.segment is None else status.segments[status.segment].evidence
    evidence: dict[str, Any] = plain(owner.to_dict())
    evidence = {**evidence, "segment": status.segment, "onset": status.onset}
    if status.classes is not None:
        evidence["classes"] = plain(status.classes.to_dict())
        # An event and a log line have the classes with the most evidence, not up to 1,000.
        del evidence["classes"]["windows"]
    return evidence


def plain(value: Any) -> Any:
    """Return a value that JSON can represent: infinite numbers become None."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
