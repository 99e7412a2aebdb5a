"""Compare maps: fit them to one file, evaluate them on another, and recommend one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from recalib.calibrator import Calibrator
from recalib.card import AutoChoice, CandidateResult
from recalib.errors import InputError
from recalib.files import LabelledData
from recalib.fitting.auto import choose
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.fit import check_data, configure_pair, fit
from recalib.fitting.validation_error import calibration_error, validation_warnings
from recalib.metrics import Estimate
from recalib.metrics.evaluate import evaluate

__all__ = ["Comparison", "ComparisonEntry", "compare"]


@dataclass(frozen=True)
class ComparisonEntry:
    """A map fitted with an objective."""

    calibrator: Calibrator
    #: On the test rows, by the names of metrics.
    metrics: dict[str, Estimate]
    #: The result of cross-validation on the validation rows.
    held_out: CandidateResult


@dataclass(frozen=True)
class Comparison:
    """The fitted pairs, and the recommendation by cross-validation."""

    entries: tuple[ComparisonEntry, ...]
    choice: AutoChoice
    #: The recommended calibrator, fitted to all validation rows; it may not be among the entries.
    recommended: Calibrator
    #: The reasons why pairs were left out.
    left_out: tuple[str, ...]
    #: Why monitoring by default settings would call the recommended calibrator stale, and what to
    #: do; see `validation_warnings`.
    warnings: tuple[str, ...]


def compare(
    validation: LabelledData,
    test: LabelledData,
    pairs: Sequence[tuple[str, str]],
    *,
    input: Literal["logits", "probabilities"] = "logits",
    preserve_accuracy: bool = True,
    level: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Fit each pair of map and objective, and recommend one as `auto` would.

    Parameters
    ----------
    validation: the data for fits and cross-validation.
    test: the data for metrics; it does not affect the recommendation.
    pairs: names of maps and objectives.
    preserve_accuracy: recommend only maps that never change predictions.
    level: confidence of the metrics' intervals, such as 0.95; none by default.
    progress: called with a description of the current step.
    """
    fitted, left_out = [], []
    for name, objective in pairs:
        progress(f"{name} by {objective}")
        try:
            calibrator = fit(validation.logits, validation.labels, name, objective, input=input)
        except InputError as error:  # a K x K matrix of very many classes
            left_out.append(str(error))
            continue
        probabilities = calibrator.predict(test.logits, input=input)
        fitted.append((calibrator, evaluate(test.labels, probabilities=probabilities, level=level)))
    _, choice = choose(
        [
            Candidate(*configure_pair(calibrator.card.map, calibrator.card.objective, {}))
            for calibrator, _ in fitted
        ],
        *check_data(validation.logits, validation.labels, input),
        preserve_accuracy=preserve_accuracy,
        progress=lambda stage, i, value: progress(f"{stage}, iteration {i}"),
    )
    results = {(result.map, result.objective): result for result in choice.candidates}
    entries = tuple(
        ComparisonEntry(
            calibrator, metrics, results[calibrator.card.map, calibrator.card.objective]
        )
        for calibrator, metrics in fitted
    )
    chosen = (choice.map, choice.objective)
    winners = [
        calibrator
        for calibrator, _ in fitted
        if (calibrator.card.map, calibrator.card.objective) == chosen
    ]
    if not winners:  # a reference that is not among the pairs
        winners = [fit(validation.logits, validation.labels, *chosen, input=input)]
    recommended = winners[0]
    probabilities = recommended.predict(validation.logits, input=input)
    validation_error = calibration_error(
        probabilities.max(axis=1), probabilities.argmax(axis=1) == validation.labels
    )
    card = msgspec.structs.replace(recommended.card, calibration_error=validation_error)
    warnings = validation_warnings(card, "the recommended calibrator")
    return Comparison(entries, choice, recommended, tuple(left_out), tuple(warnings))
