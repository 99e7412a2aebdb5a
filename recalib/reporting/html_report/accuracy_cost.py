"""What it costs to keep every predicted class: the best map that keeps it against the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recalib.calibrator import Calibrator
from recalib.files import LabelledData
from recalib.fitting.comparison import Comparison, ComparisonEntry
from recalib.metrics import METRICS, Estimate, Predictions
from recalib.metrics.evaluate import measure_all
from recalib.metrics.paired import Change, paired_changes
from recalib.metrics.streaming_changes import PairedMetrics
from recalib.reporting.html_report.changes import sentence

_METRICS = ("accuracy", "roc_auc", "nll", "brier", "binary_ece", "ece", "classwise_ce")


@dataclass(frozen=True)
class AccuracyCost:
    """Two maps on the same test rows: one keeps every predicted class, one may change it."""

    keeping: str
    changing: str
    text: str
    #: Metrics of both maps, and the change from the first to the second.
    before: Mapping[str, Estimate]
    after: Mapping[str, Estimate]
    changes: Mapping[str, Change]


def best_maps(comparison: Comparison) -> tuple[Calibrator, Calibrator] | None:
    """Return the best map that keeps every predicted class, and the best that may change it.

    The best map has the lowest cross-validated NLL on validation rows; the recommended map stands
    for its kind. None if the comparison has maps of one kind only.
    """
    keeping, changing = (_best(comparison, keeps) for keeps in (True, False))
    if keeping is None or changing is None:
        return None
    return keeping.calibrator, changing.calibrator


def measure_accuracy_cost(
    maps: tuple[Calibrator, Calibrator],
    test: LabelledData,
    input: Literal["logits", "probabilities"],
    level: float,
) -> AccuracyCost:
    """Compare two maps, which `best_maps` returns, on test rows."""
    answers = (calibrator.predict(test.logits, input=input) for calibrator in maps)
    before, after = (Predictions.from_probabilities(p, test.labels) for p in answers)
    names = [name for name in _METRICS if METRICS[name].is_defined_for(before.classes)]
    metrics_before, metrics_after = (
        measure_all(side, metrics=names, level=level) for side in (before, after)
    )
    moved = before.predicted != after.predicted
    metrics = PairedMetrics(
        len(test.labels),
        metrics_before,
        metrics_after,
        paired_changes(before, after, metrics_before, metrics_after, level=level),
        *(int((moved & part).sum()) for part in (True, after.correct, before.correct)),
    )
    return accuracy_cost(maps, metrics)


def accuracy_cost(maps: tuple[Calibrator, Calibrator], metrics: PairedMetrics) -> AccuracyCost:
    """Return the cost from the metrics of two maps on the same rows."""
    names = (maps[0].card.map, maps[1].card.map)
    before, after = (
        {name: part[name] for name in _METRICS if name in part}
        for part in (metrics.before, metrics.after)
    )
    changes = {name: metrics.changes[name] for name in _METRICS if name in metrics.changes}
    return AccuracyCost(*names, _text(names, metrics), before, after, changes)


def _best(comparison: Comparison, keeps: bool) -> ComparisonEntry | None:
    def of_kind(entries: Sequence[ComparisonEntry]) -> list[ComparisonEntry]:
        return [entry for entry in entries if entry.calibrator.map.preserves_accuracy == keeps]

    entries = of_kind(comparison.entries)
    scored = [entry for entry in entries if entry.held_out.nll is not None]
    if not scored:
        return None
    return min(scored, key=lambda entry: entry.held_out.nll.value if entry.held_out.nll else 0.0)


def _text(names: tuple[str, str], metrics: PairedMetrics) -> str:
    keeping, changing = names
    changes = metrics.changes
    verdict = changes["nll"].verdict
    if verdict == "better":
        head = "Keeping every predicted class has a cost on these rows"
    elif verdict == "worse":
        head = f"Keeping every predicted class costs nothing: {changing} is worse on these rows"
    else:
        head = "Keeping every predicted class has no clear cost on these rows"
    return (
        f"{head}. With {changing} in place of {keeping}, {sentence('nll', changes['nll'])}; "
        f"{sentence('accuracy', changes['accuracy'])}. {changing} changes the predicted class of "
        f"{metrics.moved:,} of {metrics.rows:,} test rows: {metrics.righted:,} become right and "
        f"{metrics.wronged:,} become wrong."
    )
