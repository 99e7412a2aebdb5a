"""What it costs to keep every predicted class: the best map that keeps it against the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recalib.files import LabelledData
from recalib.fitting.comparison import Comparison, ComparisonEntry
from recalib.metrics import Estimate, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.paired import Change, paired_changes
from recalib.reporting.html_report.changes import sentence

__all__ = ["AccuracyCost", "measure_accuracy_cost"]

_METRICS = ("accuracy", "nll", "brier", "ece", "classwise_ce")


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


def measure_accuracy_cost(
    comparison: Comparison,
    test: LabelledData,
    input: Literal["logits", "probabilities"],
    level: float,
) -> AccuracyCost | None:
    """Compare the best map that keeps every predicted class with the best that may change it.

    The best map has the lowest cross-validated NLL on validation rows; the recommended map stands
    for its kind. None if the comparison has maps of one kind only.
    """
    keeping, changing = (_best(comparison, keeps) for keeps in (True, False))
    if keeping is None or changing is None:
        return None
    maps = [entry.calibrator for entry in (keeping, changing)]
    answers = [calibrator.predict(test.logits, input=input) for calibrator in maps]
    before, after = (Predictions.from_probabilities(p, test.labels) for p in answers)
    metrics_before, metrics_after = (
        evaluate(test.labels, probabilities=p, metrics=_METRICS, level=level) for p in answers
    )
    changes = paired_changes(before, after, metrics_before, metrics_after, level=level)
    names = (maps[0].card.map, maps[1].card.map)
    text = _text(names, before, after, changes)
    return AccuracyCost(*names, text, metrics_before, metrics_after, changes)


def _best(comparison: Comparison, keeps: bool) -> ComparisonEntry | None:
    def of_kind(entries: Sequence[ComparisonEntry]) -> list[ComparisonEntry]:
        return [entry for entry in entries if entry.calibrator.map.preserves_accuracy == keeps]

    entries = of_kind(comparison.entries)
    chosen = [entry for entry in entries if entry.held_out.chosen]
    scored = [entry for entry in entries if entry.held_out.nll is not None]
    if chosen or not scored:
        return chosen[0] if chosen else None
    return min(scored, key=lambda entry: entry.held_out.nll.value if entry.held_out.nll else 0.0)


def _text(
    names: tuple[str, str], before: Predictions, after: Predictions, changes: Mapping[str, Change]
) -> str:
    keeping, changing = names
    moved = before.predicted != after.predicted
    righted, wronged = (int((moved & p.correct).sum()) for p in (after, before))
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
        f"{moved.sum():,} of {len(moved):,} test rows: {righted:,} become right and {wronged:,} "
        "become wrong."
    )
