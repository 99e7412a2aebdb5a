"""The card of a fit: what a calibrator says about itself."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

import recalib
from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats, Integers, undeclared_text
from recalib.core.card import Card, FitSummary, MetricValue, ReliabilityBins
from recalib.core.masks import Mask
from recalib.core.options import options_of
from recalib.errors import RecalibWarning
from recalib.fitting.diagnostics import Diagnosis, diagnostic_text
from recalib.fitting.problem import Problem, Solution, bound_texts, first_numbers
from recalib.metrics.base import Estimate
from recalib.metrics.evaluate import measure_all
from recalib.metrics.multilabel import LabelPredictions, evaluate_labels
from recalib.metrics.predictions import Predictions
from recalib.stats.sums import Bins, RootBins

#: As reports draw.
_DIAGRAM_BINS = 15
#: Warnings of all folds that are shown.
_MAX_SHOWN = 3


def create_card(
    problem: Problem,
    solution: Solution,
    diagnosis: Diagnosis,
    *,
    seconds: float,
    warnings: Sequence[str],
    labels: tuple[str, ...] | None = None,
    **fields: Any,
) -> Card:
    """Return the card of a fit.

    Parameters
    ----------
    problem: with the map and the objective of the fit.
    seconds: the time of the fit.
    warnings: about the rows.
    labels: names of the classes, if they are known.
    fields: further fields of the card.
    """
    text_of = partial(diagnostic_text, problem=problem, names=labels)
    return Card(
        map=problem.map.name,
        objective=problem.objective.name,
        options=options_of(problem.map),
        objective_options=options_of(problem.objective),
        classes=problem.classes,
        labels=labels,
        library=recalib.__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        fit=FitSummary(
            seconds=seconds,
            iterations=solution.iterations,
            converged=solution.converged,
            objective=solution.objective,
            bounds_reached=bound_texts(solution.bounds),
            settled=solution.settled,
            warnings=(*solution.warnings, *warnings, *map(text_of, diagnosis.diagnostics)),
            effective_rows=diagnosis.effective_rows,
            estimates=diagnosis.estimates,
            diagnostics=diagnosis.diagnostics,
        ),
        **fields,
    )


def data_warnings(counts: Integers | None, undeclared: str, mask: Mask | None) -> list[str]:
    """Return warnings about rows, independent of the map.

    Parameters
    ----------
    counts: (K,), the rows with each label; None of independent labels.
    undeclared: why logits look like probabilities, "" if they do not; the last warning.
    mask: the rule of logits that stand for −inf, if there is one.
    """
    messages = []
    if counts is not None and (rows := int(counts.sum())) < len(counts):
        messages.append(f"{rows} rows for {len(counts)} classes: too few to trust the result")
    if counts is not None and len(absent := np.flatnonzero(counts == 0)) > 0:
        text = f"{len(absent)} of {len(counts)} classes never occur in the labels"
        messages.append(f"{text}: {first_numbers(absent)}")
    if mask is not None:
        messages.append(mask.warning)
    if undeclared:
        messages.append(undeclared_text(undeclared))
    return messages


def with_warning(calibrator: Calibrator, text: str) -> Calibrator:
    """Return a calibrator whose card has one more warning of the fit, none for ""."""
    if not text:
        return calibrator
    fit = calibrator.card.fit
    fit = msgspec.structs.replace(fit, warnings=(*fit.warnings, text))
    return Calibrator(calibrator.parameters, msgspec.structs.replace(calibrator.card, fit=fit))


def show_warnings(*cards: Card, stacklevel: int) -> None:
    """Warn of what a card says about its fit; of the cards of folds, of the most frequent texts."""
    counts: Counter[str] = Counter()
    for card in cards:
        counts.update((*card.fit.bounds_reached, *card.fit.warnings))
    shown = counts.most_common()
    if len(cards) > 1:
        shown = [(f"{text} (in {n} of {len(cards)} folds)", n) for text, n in shown]
        if (more := len(shown) - _MAX_SHOWN) > 0:
            shown[_MAX_SHOWN:] = [(f"and {more} more, in the cards of the folds", more)]
    for text, _ in shown:
        warnings.warn(text, RecalibWarning, stacklevel=stacklevel)


def measure_metrics(
    logits: Floats,
    probabilities: NDArray[np.float64],
    labels: NDArray[Any],
    sample_weight: ArrayLike | None = None,
) -> dict[str, dict[str, MetricValue]]:
    """Return the metrics of a card, `before` and `after` the map, with 95% intervals.

    Those of labels (N, K) are means over labels, without intervals.

    Parameters
    ----------
    logits: (N, K), checked.
    probabilities: (N, K), of the calibrator.
    labels: (N,), or (N, K) of independent labels, checked.
    sample_weight: (N,), as in `evaluate`.
    """
    if labels.ndim == 2:
        stages = {
            "before": LabelPredictions.from_scores(logits, labels, input="logits"),
            "after": LabelPredictions.from_scores(probabilities, labels, input="probabilities"),
        }
        return {
            stage: metric_values(evaluate_labels(rows, sample_weight=sample_weight).average)
            for stage, rows in stages.items()
        }
    after = Predictions.from_probabilities(probabilities, labels)
    return measure_stages(stages_of(logits, after), sample_weight)


def stages_of(logits: Floats, after: Predictions) -> dict[str, Predictions]:
    """Return the predictions of checked logits `before` the map, and those `after` it."""
    is_rounded = after.probabilities.dtype == np.float32
    before = Predictions.from_logits(logits, after.labels, is_rounded=is_rounded)
    return {"before": before, "after": after}


def reliability_of(
    stages: Mapping[str, Predictions], weights: NDArray[np.float64] | None = None
) -> dict[str, ReliabilityBins]:
    """Return what the reliability diagram of each stage shows."""
    found = {}
    for stage, predictions in stages.items():
        is_root = predictions.has_rare_class
        rows = predictions.of_class(1) if predictions.classes == 2 else predictions
        kind = RootBins if is_root else Bins
        state = kind(_DIAGRAM_BINS, weighted=weights is not None)
        state.add(rows.confidences, rows.correct, weights)
        found[stage] = reliability_bins(state, is_root=is_root)
    return found


def reliability_bins(state: Bins, *, is_root: bool = False) -> ReliabilityBins:
    """Return the sums of rows in the form of a card."""
    count, confidence = tuple(state.count.tolist()), tuple(state.confidence.tolist())
    if not state.weighted:
        return ReliabilityBins(count, confidence, tuple(map(int, state.correct)), is_root)
    weight, squares = (tuple(sums.weight.tolist()) for sums in (state.moments, state.squared))
    correct = tuple(state.correct.tolist())
    return ReliabilityBins(count, confidence, correct, is_root, weight, squares)


def measure_stages(
    stages: Mapping[str, Predictions], sample_weight: ArrayLike | None
) -> dict[str, dict[str, MetricValue]]:
    """Return the metrics of the predictions before and after the map."""
    return {
        stage: metric_values(measure_all(predictions, sample_weight, level=0.95))
        for stage, predictions in stages.items()
    }


def metric_values(evaluation: Mapping[str, Estimate]) -> dict[str, MetricValue]:
    """Return estimates in the form of a card."""
    return {
        name: MetricValue(estimate.value, estimate.low, estimate.high, estimate.floor)
        for name, estimate in evaluation.items()
    }
