"""The alert of a suspect or stale champion: its labels since the onset, and earlier versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recalib.contract.alerts import Alert, AlertPlace, VersionComparison
from recalib.contract.base import utc
from recalib.core.arrays import Numbers
from recalib.drift import drift_report
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.row_groups import arrange_units, unit_means
from recalib.drift.target import PROMISES, Target, values_of_predicted_class
from recalib.registry import LabelColumns, Model, Registry
from recalib.registry.alerts import drift_onset, earlier_champions, next_command
from recalib.settings import Settings
from training.assessment import Assessor, segment_names
from training.logit_samples import brier_scores, read_calibrator, read_labelled_sample
from training.sampled_rows import read_promised

#: With this number of labels, an alert is not computed again for the same onset.
_ENOUGH_LABELS = 50_000
_MAX_COMPARED_ROWS = 20_000


@dataclass(frozen=True)
class Links:
    """URLs in alerts; without one of the server, operators have it in their environment."""

    server: str = ""
    runbook: str = Settings.model_fields["runbook_url"].default
    dashboard: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Links:
        """Return the URLs of the settings."""
        return cls(settings.public_url, settings.runbook_url, settings.dashboard_url)


def make_alert(
    registry: Registry,
    model: Model,
    version: int,
    assessor: Assessor,
    status: dict[str, Any],
    earlier: dict[str, Any] | None,
    through: float,
    links: Links,
) -> dict[str, Any] | None:
    """Return the alert about a status, as JSON; None without labels.

    Parameters
    ----------
    earlier: the alert of the last status.
    through: the end of the matured predictions.
    """
    start = drift_onset(status)
    if start is None:
        start = status["evidence"]["window_start"] or through
    onset = utc(start)
    if earlier is not None and earlier["labels"] >= _ENOUGH_LABELS:
        last = Alert.model_validate(earlier)
        if abs((last.onset - onset).total_seconds()) < 1:
            return earlier
    with registry.reading() as tx:
        rows = tx.labels.columns(model, version, start, through)
    selected = rows.labelled_at - rows.predicted_at <= model.monitoring.maturity_seconds
    promised = None
    if status["segment"] in PROMISES:
        found = read_promised(registry, model, version, start, through, assessor.promises)
        promised = found.get(status["segment"])
    elif status["segment"] is not None:
        selected &= rows.segment == segment_names(model.monitoring).index(status["segment"])
    rows = rows.select(selected)
    if not len(rows.label):
        return None
    with registry.reading() as tx:
        champions = earlier_champions(tx, model, version)
    versions = _compare(registry, model, version, champions, start, through)
    since = f"{onset:%Y-%m-%d %H:%M} UTC"
    described = _describe(model, assessor, rows, since)
    if promised is not None and np.size(promised.confidences):
        columns, target = (*promised.rows(), promised.group_numbers()), PROMISES[status["segment"]]
        described = _describe_rows(*columns, {}, since, target)
    runbook, dashboard = _links(model, status["state"], links)
    alert = Alert.model_validate(
        {**described, "onset": onset, "versions": versions, "command": ""}
        | {"runbook": runbook, "dashboard": dashboard}
    )
    with registry.reading() as tx:
        command = next_command(tx, model, alert, links.server)
    return alert.model_copy(update={"command": command}).model_dump(mode="json")


def _describe(model: Model, assessor: Assessor, rows: LabelColumns, since: str) -> dict[str, Any]:
    """Return the fields of an alert that follow from the labels."""
    p, y = (
        values_of_predicted_class(values, rows.predicted, assessor.target)
        for values in (rows.confidence, rows.correct)
    )
    bins = left_closed_bins(assessor.edges, p)
    kinds: dict[str, Any] = {"bin": (bins, drift_report.bin_names(assessor.edges))}
    if assessor.target == "top_label":
        kinds["class"] = rows.predicted, model.labels or [str(k) for k in range(model.classes)]
    names = segment_names(model.monitoring)
    if len(names) > 1 and np.ptp(rows.segment) > 0:
        kinds["segment"] = rows.segment, names
    return _describe_rows(p, y, rows.group.astype(np.int64), kinds, since, assessor.target)


def _describe_rows(
    p: Numbers, y: Numbers, groups: Any, kinds: dict[str, Any], since: str, target: Target
) -> dict[str, Any]:
    gap = drift_report.measure_gap(p, y, groups)
    places = drift_report.find_places(p, y, kinds, groups)
    return {
        **gap._asdict(),
        "direction": drift_report.direction_of(gap),
        "places": [
            AlertPlace(kind=kind, name=name, **place._asdict()) for kind, name, place in places
        ],
        "summary": drift_report.describe_drift(gap, places, since, target),
    }


def _compare(
    registry: Registry, model: Model, version: int, others: list[int], start: float, end: float
) -> list[VersionComparison]:
    """Return how other versions do on the champion's labelled predictions with kept logits."""
    if not others:
        return []
    rows = read_labelled_sample(
        registry, model, version, start, end, newest=True, max_rows=_MAX_COMPARED_ROWS
    )
    if not len(rows):
        return []
    # The champion has the answers that were given, adapted to label shift or not.
    scores = {
        other: brier_scores(read_calibrator(registry, model, other), rows, given=other == version)
        for other in (version, *others)
    }
    comparisons = []
    order, sizes = arrange_units(rows.groups)
    for other in others:
        difference = unit_means((scores[version] - scores[other])[order], sizes)
        low, high = drift_report.mean_interval(difference)
        mean = float(difference.mean())
        comparisons.append(
            VersionComparison(
                version=other, labels=len(difference), difference=mean, low=low, high=high
            )
        )
    return comparisons


def _links(model: Model, state: str, links: Links) -> tuple[str, str]:
    alert = "calibratorstale" if state == "stale" else "calibrationerroroverobjective"
    dashboard = f"{links.dashboard}?var-model={model.name}" if links.dashboard else ""
    return f"{links.runbook}#{alert}", dashboard
