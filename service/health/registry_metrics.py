"""Prometheus metrics from the registry: jobs, and the calibration state of each champion.

A scrape reads them from the database: every server process returns the same values, and versions
that no longer serve disappear. Reliability is counted by bin when a cohort of predictions has
matured. So the order of labels has no influence, and the calibration error of any interval is one
expression over three counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from recalib.contract.alerts import Alert
from recalib.contract.jobs import JobState
from recalib.drift import STATES
from recalib.errors import RecalibError
from recalib.metrics.roc_auc import roc_auc_of_bins
from recalib.registry import MonitoringSettings, MonitorRow, Registry
from recalib.registry.audit import SCHEDULED_BACKUP
from recalib.registry.job_kinds import FIT, MONITOR, REFIT, TRAIN
from recalib.settings import Settings
from recalib.shift import Shadow
from service.state import State

#: A scrape has ten seconds and returns the other metrics even if the registry hangs.
_PATIENCE_SECONDS = 2.0

#: Exported from the start: a counter that appears with its first failure shows no increase.
_NONE_FAILED: dict[tuple[str, JobState], int] = {
    (kind, "failed"): 0 for kind in (FIT, MONITOR, REFIT, TRAIN)
}
_ESTIMATORS = (
    "ece",
    "ece_floor",
    "ece_low",
    "ece_high",
    "selection_low",
    "selection_high",
    "ce",
    "ce_low",
    "ce_high",
)
#: Gauges by the key of their value in the evidence.
_GAUGES = {
    "n": ("recalib_window_labels", "Labels of the latest window."),
    "traffic": ("recalib_window_predictions", "Predictions of the latest window."),
    "coverage": ("recalib_label_coverage_ratio", "Share of the window's predictions with labels."),
    "silent": (
        "recalib_silent_traffic_ratio",
        "Share of the window's predictions about which labels say nothing.",
    ),
    "silent_since": (
        "recalib_silent_since_timestamp_seconds",
        "Prediction time since which there are no labels; absent while labels arrive.",
    ),
    "rare_since": (
        "recalib_rare_since_timestamp_seconds",
        "Prediction time since which labels are rare; absent while their rate is the usual one.",
    ),
    "rare_widening": (
        "recalib_rare_widening_ratio",
        "How much wider rare labels make the interval; absent while their rate is the usual one.",
    ),
    "delay": ("recalib_label_delay_seconds", "Mean time from prediction to label."),
    "accuracy": (
        "recalib_accuracy_ratio",
        "Share of the window's labels that were right; of two classes, that are class 1.",
    ),
    "confidence": (
        "recalib_confidence_ratio",
        "Mean confidence of the window's labels; of two classes, mean P(y = 1).",
    ),
    "log_evidence": ("recalib_log_evidence", "Logarithm of the test's evidence of drift."),
    "threshold": ("recalib_log_evidence_threshold", "What it must reach to call it stale."),
    "psi": ("recalib_confidence_psi", "Shift of served confidences from the calibration set."),
    "psi_threshold": ("recalib_confidence_psi_threshold", "What chance alone hardly exceeds."),
}
#: Gauges of a watched class by the key of their value in its window.
_CLASS_GAUGES = {
    "predictions": ("recalib_class_window_predictions", "The window's predictions of the class."),
    "labelled": ("recalib_class_window_labels", "Those of them with a label."),
    "accuracy": ("recalib_class_accuracy_ratio", "Share of these labels that were right."),
    "confidence": ("recalib_class_confidence_ratio", "Their mean confidence."),
    "silent": ("recalib_class_silent", "1 if labels say nothing about predictions of the class."),
}
#: Gauges of label shift in shadow, by the key of their value in its report.
_ADAPTATION_GAUGES = {
    "number": ("recalib_adaptation_state", "Number of the last state of label shift."),
    "weight": ("recalib_adaptation_weight_ratio", "Weight of adapted answers after labels."),
    "applied": ("recalib_adaptation_applied_ratio", "Weight in answers of servers; 0 in shadow."),
    "evidence": (
        "recalib_adaptation_evidence_nats",
        "By how many nats adapted answers were better on labels.",
    ),
}
#: Counters by the key of their value in the sums.
_COUNTERS = {
    "traffic": ("recalib_reliability_predictions", "Predictions that have matured."),
    "labelled": ("recalib_reliability_labels", "Predictions that have matured with a label."),
    "confidence": ("recalib_reliability_confidence", "Sum of their confidences."),
    "correct": ("recalib_reliability_correct", "Those of them that were right."),
}


class RegistrySnapshot(NamedTuple):
    """A snapshot of the registry."""

    jobs: dict[tuple[str, JobState], int]
    champions: list[tuple[str, MonitoringSettings, MonitorRow]]
    #: Champions without an assessment: model, version, and start of serving.
    unwatched: list[tuple[str, int, float]]
    #: When the last scheduled backup was complete, in seconds since 1970; None: never.
    backup_at: float | None


def take_snapshot(state: State) -> RegistrySnapshot | None:
    """Return a snapshot, or None if the registry does not answer in time; scrapes share a call."""
    try:
        snapshot: RegistrySnapshot = state.single_flight.submit(
            "metrics", partial(read, state.registry)
        ).result(_PATIENCE_SECONDS)
    except (RecalibError, TimeoutError):
        return None
    return snapshot


def read(registry: Registry) -> RegistrySnapshot:
    """Return a snapshot; raise `UnavailableError` if the registry cannot be reached."""
    with registry.reading() as tx:
        return RegistrySnapshot(
            tx.jobs.counts(),
            tx.monitors.champions(),
            tx.monitors.champions_without_monitor(),
            tx.audit.last(SCHEDULED_BACKUP),
        )


def families(snapshot: RegistrySnapshot | None) -> Iterable[Any]:
    """Yield metric families; without a snapshot, only `recalib_registry_up`."""
    up = GaugeMetricFamily("recalib_registry_up", "Whether the registry answers.")
    up.add_metric([], int(snapshot is not None))
    yield up
    if snapshot is None:
        return
    jobs = GaugeMetricFamily("recalib_jobs", "Jobs by state.", labels=["kind", "state"])
    for (kind, state), count in {**_NONE_FAILED, **snapshot.jobs}.items():
        jobs.add_metric([kind, state], count)
    yield jobs
    backup = GaugeMetricFamily(
        "recalib_backup_timestamp_seconds", "When the last scheduled backup was complete."
    )
    _add(backup, [], snapshot.backup_at)
    yield backup
    yield from _champion_families(snapshot)
    yield from _alert_families(snapshot)


class _OfVersions(list[Any]):
    """Families of metrics whose first labels are a model and the number of its version."""

    def add(self, name: str, description: str, *labels: str, kind: Any = GaugeMetricFamily) -> Any:
        """Add a family with further labels, and return it."""
        self.append(kind(name, description, labels=["model", "calibrator", *labels]))
        return self[-1]


def links_family(settings: Settings) -> Any:
    """Return the URLs of the settings, which the annotations of alerts read."""
    links = InfoMetricFamily("recalib_links", "URLs for the annotations of alerts.")
    urls = {"server": settings.public_url, "runbook": settings.runbook_url}
    links.add_metric([], {**urls, "dashboard": settings.dashboard_url})
    return links


def _alert_families(snapshot: RegistrySnapshot) -> list[Any]:
    """Return what is known of suspect and stale champions since the onset."""
    families = _OfVersions()
    error = families.add(
        "recalib_alert_error_ratio",
        "Confidence minus accuracy of a suspect or stale champion since the onset, with interval.",
        "bound",
    )
    count = families.add("recalib_alert_labels", "Labels since the onset.")
    onset = families.add("recalib_alert_onset_timestamp_seconds", "Estimated start of the drift.")
    for model, _, row in snapshot.champions:
        # A status may have been written by an earlier version.
        if row.status.get("alert") is None:
            continue
        alert, labels = Alert.model_validate(row.status["alert"]), [model, str(row.version)]
        error.add_metric([*labels, "estimate"], alert.confidence - alert.accuracy)
        error.add_metric([*labels, "low"], alert.low)
        error.add_metric([*labels, "high"], alert.high)
        count.add_metric(labels, alert.labels)
        onset.add_metric(labels, alert.onset.timestamp())
    return families


def _champion_families(snapshot: RegistrySnapshot) -> list[Any]:
    families = _OfVersions()
    states = families.add("recalib_calibration_state", "1 for the state that it is in.", "state")
    error = families.add(
        "recalib_calibration_error_ratio",
        "Calibration error of the latest window, its noise floor and intervals.",
        "segment",
        "estimator",
    )
    selection = families.add(
        "recalib_evidence_may_be_selection",
        "1 if the evidence against it may come from the selection of labels.",
        "segment",
    )
    dependence = families.add(
        "recalib_evidence_dependent",
        "1 if neighbouring rows depend on each other, without a group.",
        "segment",
    )
    repeats = families.add(
        "recalib_evidence_has_repeats",
        "1 if more rows than chance explains repeat one close by, without a group.",
        "segment",
    )
    objective = families.add("recalib_calibration_objective_ratio", "The error that is still good.")
    needed = families.add(
        "recalib_window_labels_needed",
        "Minimum number of labels of a window, as the model declares.",
    )
    assessed = families.add(
        "recalib_assessed_timestamp_seconds",
        "When it was last looked at; before the first look, since when it serves.",
    )
    since = families.add(
        "recalib_calibration_state_since_timestamp_seconds", "When it entered the state."
    )
    auc = families.add(
        "recalib_roc_auc",
        "Area under the ROC curve of P(y = 1) of two classes, over the version's matured labels.",
    )
    expected = families.add(
        "recalib_expected_performance_ratio",
        "What the window's predictions achieve if they are still calibrated; none where stale.",
        "metric",
        "estimator",
    )
    late = families.add(
        "recalib_late_labels", "Labels too late to count.", kind=CounterMetricFamily
    )
    gauges = {name: families.add(*described) for name, described in _GAUGES.items()}
    counters = {
        name: families.add(*described, "bin", kind=CounterMetricFamily)
        for name, described in _COUNTERS.items()
    }
    class_gauges = {
        name: families.add(*described, "class") for name, described in _CLASS_GAUGES.items()
    }
    adaptation_gauges = {
        name: families.add(*described) for name, described in _ADAPTATION_GAUGES.items()
    }
    for model, version, serves_since in snapshot.unwatched:
        assessed.add_metric([model, str(version)], serves_since)
    for model, monitoring, row in snapshot.champions:
        labels = [model, str(row.version)]
        for state in STATES:
            states.add_metric([*labels, state], int(row.status["state"] == state))
        parts = {"": row.status, **row.status["segments"]}
        for segment, part in parts.items():
            for name in _ESTIMATORS:
                # A status may have been written by an earlier version.
                _add(error, [*labels, segment, name], part["evidence"].get(name))
            selection.add_metric([*labels, segment], int(part.get("may_be_selection", False)))
            for family, name in ((dependence, "dependent"), (repeats, "has_repeats")):
                family.add_metric([*labels, segment], int(part["evidence"].get(name, False)))
        objective.add_metric(labels, monitoring.objective)
        needed.add_metric(labels, monitoring.least_labels)
        assessed.add_metric(labels, row.assessed_at)
        _add(since, labels, row.status["since"])
        late.add_metric(labels, row.late)
        for name, gauge in gauges.items():
            _add(gauge, labels, row.status["evidence"].get(name))
        for name, part in (row.status["evidence"].get("expected") or {}).items():
            if isinstance(part, dict):
                for estimator, value in part.items():
                    expected.add_metric([*labels, name, estimator], value)
        # Bins are of the confidence otherwise.
        if row.status["evidence"].get("target") == "positive_class":
            labelled, ones = np.array(_weights(row)), np.array(row.totals["correct"])
            _add(auc, labels, roc_auc_of_bins(labelled - ones, ones))
        # Statuses of earlier versions have no classes, or none with windows.
        for window in (row.status.get("classes") or {}).get("windows", ()):
            for name, gauge in class_gauges.items():
                _add(gauge, [*labels, str(window["class_index"])], window[name])
        if row.adaptation is not None and monitoring.adaptation != "none":
            adaptation = Shadow.of(row.adaptation).report()
            for name, gauge in adaptation_gauges.items():
                gauge.add_metric(labels, adaptation[name])
        for name, counter in counters.items():
            for bin, total in enumerate(_weights(row) if name == "labelled" else row.totals[name]):
                counter.add_metric([*labels, str(bin)], total)
    return families


def _weights(row: MonitorRow) -> list[float]:
    """Return the labels by bin where a group counts once, as in the other sums of labels."""
    return row.totals.get("weight", row.totals["labelled"])


def _add(family: Any, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
