"""What other monitoring settings would have done to the labels and counts that are retained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.core.monitoring_settings import EvidenceSettings, MonitoringSettings
from recalib.core.time_text import time_text
from recalib.registry import Model, MonitorRow
from training.assessment import Assessor
from training.job_context import JobContext
from training.live_cohorts import LiveCohorts

#: Old traffic is kept by the hour.
_HOUR = 3600.0
#: Changes of state in the result of the job: the newest.
_MAX_EVENTS = 100
#: Settings that a replay can vary: what labels and counts are read for.
_VARIED = (*EvidenceSettings.__dataclass_fields__, "maturity_seconds", "cohort_seconds")


class SettingsReplayRequest(msgspec.Struct, frozen=True):
    """The payload of a replay of retained labels."""

    model: str
    version: int
    #: As `MonitoringSettings.to_dict` returns them.
    settings: dict[str, Any]


def replay_settings(context: JobContext, pause: Callable[[], object]) -> None:
    """Run the monitor over what is retained, with the present settings and with others.

    Nothing changes. Both runs begin with the share of α that the present test has.

    Parameters
    ----------
    pause: called between two steps.
    """
    request = context.request(SettingsReplayRequest)
    with context.registry.reading() as tx:
        model = tx.models.get(request.model)
        card = convert(tx.calibrators.get(model, request.version).card, Card)
        row = tx.monitors.find(model, request.version)
        number = tx.monitors.next_number(model) if row is None else row.number
        now = tx.clock()
    present, proposed = model.monitoring, MonitoringSettings.of(request.settings)
    runs = []
    for half, settings in enumerate((present, proposed)):
        of = replace(model, monitoring=_replayable(present, settings))
        assessor = Assessor(of, request.version, card, number, {})
        run = _Run(settings, LiveCohorts(of, request.version, assessor, now))
        for share in run.parts(context):
            context.progress((half + share) / 2, "replaying retained labels")
            pause()
            context.check_cancelled()
        runs.append(run)
    changes = _changes(model, proposed)
    result = {
        "version": request.version,
        "settings": request.settings,
        "changes": changes,
        "present": runs[0].to_dict(),
        "proposed": runs[1].to_dict(),
        "not_replayed": list(_not_replayed(changes, row, *runs)),
    }
    with context.finishing() as tx:
        tx.jobs.succeed(context.lease, result)


@dataclass
class _Run:
    """The states of a version with one choice of settings."""

    settings: MonitoringSettings
    live: LiveCohorts
    start: float | None = None
    end: float | None = None
    cohorts: int = 0
    labels: int = 0
    state: str = "unverified"
    events: list[dict[str, Any]] = field(default_factory=list)

    def parts(self, context: JobContext) -> Iterator[float]:
        """Assess all cohorts; yield the done share of their time after each part."""
        through = 0.0
        while True:
            with context.registry.reading() as tx:
                part = list(self.live.read(tx, through))
            if not part:
                return
            for cohort in part:
                assessment = self.live.add(context.registry, cohort, None)
                self.cohorts += 1
                self.labels += sum(len(np.asarray(item.correct)) for item in cohort.parts.values())
                if assessment.state != self.state:
                    self.state = assessment.state
                    at = cohort.end + self.live.model.monitoring.maturity_seconds
                    event = {"time": at, "state": self.state, "reason": assessment.reason}
                    self.events.append(event)
            self.start = part[0].start if self.start is None else self.start
            self.end = through = part[-1].end
            yield (through - self.start) / (self.live.now - self.start)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON."""
        names = ("state", "start", "end", "cohorts", "labels")
        return {name: getattr(self, name) for name in names} | {
            "events": self.events[-_MAX_EVENTS:]
        }


def _replayable(present: MonitoringSettings, settings: MonitoringSettings) -> MonitoringSettings:
    """Return settings with cohorts of whole hours, and the segments and classes of the counts."""
    length = math.ceil(settings.cohort_seconds / _HOUR) * _HOUR
    return replace(
        settings, cohort_seconds=length, segments=present.segments, classes=present.classes
    )


def _changes(model: Model, proposed: MonitoringSettings) -> dict[str, list[Any]]:
    """Return the present and the proposed value of each setting that differs."""
    before, after = model.monitoring.to_dict(), proposed.to_dict()
    return {name: [before[name], after[name]] for name in after if before[name] != after[name]}


def _not_replayed(
    changes: dict[str, list[Any]], row: MonitorRow | None, present: _Run, proposed: _Run
) -> Iterator[str]:
    """Yield a sentence for all that the runs leave out."""
    if row is not None and row.replayed_through is not None:
        until = time_text(row.replayed_through)
        yield f"Predictions of a log of the past, until {until}: their labels are not retained."
    read = 0 if row is None else sum(row.totals.get("labelled", ()))
    if read > present.labels:
        yield f"{read - present.labels:,} labels that were read earlier, and have been deleted."
    if "segments" in changes:
        yield "Another list of segments: predictions keep the segment that they were made with."
    if "classes" in changes:
        yield "Other classes: predictions were only counted for the present ones."
    others = [name for name in changes if name not in (*_VARIED, "segments", "classes")]
    if others:
        yield f"No state depends on {', '.join(others)}."
    if any(run.settings.cohort_seconds % _HOUR for run in (present, proposed)):
        yield "Cohorts that are no whole hours: old counts are by the hour, so cohorts are longer."
