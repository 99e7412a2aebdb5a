"""The latest window of monitoring by bins of the monitored probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from recalib.contract.monitoring import MonitoringReport
from recalib.drift import CalibrationSums
from recalib.registry import Transaction

#: Cohorts with their segments that are read; a window has 24 or fewer entries.
_MAX_COHORTS = 500


@dataclass(frozen=True)
class WindowBins:
    """Predictions of the latest cohorts that hold the labels of the window, by bin."""

    #: Start of the oldest cohort and end of the newest, in seconds.
    start: float
    end: float
    predictions: int
    #: Of each bin: `low` and `high`, the shares `reference` of the calibration set and `window`,
    #: the share `labelled` of its predictions, mean `probability` and `frequency` of these.
    rows: list[dict[str, Any]]
    #: The largest share of a bin.
    largest: float


def read_window(tx: Transaction, report: MonitoringReport) -> WindowBins | None:
    """Return the latest window of a champion; None without cohorts of predictions."""
    if report.version is None:
        return None
    model = tx.models.get(report.model)
    cohorts = tx.monitors.cohorts(model, report.version, 0.0, _MAX_COHORTS)
    total, start = None, 0.0
    for _, parts in groupby(cohorts, key=lambda cohort: cohort.started_at):
        for part in parts:
            sums, start = CalibrationSums.from_dict(part.sums), part.started_at
            total = sums if total is None else total.merge(sums)
        if total is not None and total.labelled.sum() >= (report.evidence.get("n") or 1):
            break
    if total is None or not total.traffic.sum():
        return None
    confidences = tx.calibrators.get(model, report.version).card.get("confidences") or {}
    counts = np.asarray(confidences.get("counts", ()), np.float64)
    rows = list(_rows(total, counts))
    largest = max(max(row["window"], row["reference"] or 0) for row in rows)
    return WindowBins(start, cohorts[0].ended_at, int(total.traffic.sum()), rows, largest)


def _rows(sums: CalibrationSums, counts: Any) -> Iterator[dict[str, Any]]:
    bounds = [0.0, *sums.edges.tolist(), 1.0]
    has_reference = len(counts) == sums.bins and counts.sum() > 0
    for k in range(sums.bins):
        traffic, weight = int(sums.traffic[k]), float(sums.weight[k])
        yield {
            "low": bounds[k],
            "high": bounds[k + 1],
            "reference": float(counts[k] / counts.sum()) if has_reference else None,
            "window": traffic / float(sums.traffic.sum()),
            "labelled": min(1.0, int(sums.labelled[k]) / traffic) if traffic else None,
            "probability": float(sums.confidence[k]) / weight if weight else None,
            "frequency": float(sums.correct[k]) / weight if weight else None,
        }
