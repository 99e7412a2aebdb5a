"""Compare maps: fit them to one file, evaluate them on another, and recommend one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import (
    Floats,
    Integers,
    WeightKind,
    check_weights,
    drop_rows_without_weight,
)
from recalib.core.card import AutoChoice, CandidateResult, MetricValue, PredictionPolicy
from recalib.core.html_table import html_table
from recalib.core.inputs import as_array
from recalib.core.masks import mask_constants
from recalib.core.options import check_names, options_of
from recalib.drift.target import pairs_of_rows
from recalib.errors import InputError
from recalib.files import LabelledData
from recalib.fitting.auto import choose
from recalib.fitting.auto_choice import winner_sentences
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.fit import check_data, fit
from recalib.fitting.request import candidate_of, configure_pair
from recalib.fitting.solvers import check_size, check_summable
from recalib.fitting.validation_error import calibration_error, validation_warnings
from recalib.maps import MAPS
from recalib.maps.stack import Stack
from recalib.metrics import Estimate
from recalib.metrics.evaluate import evaluate
from recalib.metrics.evaluation import format_metric
from recalib.metrics.headline import headline_metrics
from recalib.objectives import OBJECTIVES

#: Fits a map by an objective, with options as keywords.
FitMap = Callable[..., Calibrator]


@dataclass(frozen=True)
class ComparisonEntry:
    """A map fitted with an objective."""

    calibrator: Calibrator
    #: On the test rows, by the names of metrics.
    metrics: dict[str, Estimate]
    #: The result of cross-validation on the validation rows.
    held_out: CandidateResult

    def cells(self, metrics: Sequence[str]) -> list[str]:
        """Return the cells of a row: mark, map, objective, these metrics, and held-out scores."""
        card, result = self.calibrator.card, self.held_out
        nll = "" if result.nll is None else f"{result.nll.value:.4f}"
        difference = ""
        if (change := result.nll_difference) is not None and change.low is not None:
            difference = f"{change.value:+.4f} ({change.low:+.4f} to {change.high:+.4f})"
        mark = "recommended" if result.chosen else ""
        if result.chosen and result.weight is not None and result.weight < 1:
            mark = f"{result.weight:.0%} of the recommended"
        texts = [format_metric(name, self.metrics[name].value) for name in metrics]
        return [mark, card.map, card.objective, *texts, nll, difference]


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.entries)} maps: {self.choice.reason}>"

    def _repr_html_(self) -> str:
        measured = [set(entry.metrics) for entry in self.entries]
        shown = headline_metrics(set.intersection(*measured) if measured else set())
        header = ["", "map", "objective", *shown, "cross-validated nll", "over temperature"]
        caption = f"cross-validated on {self.choice.rows} rows in {self.choice.folds} folds"
        rows = [entry.cells(shown) for entry in self.entries]
        notes = (
            f"recommended: {self.choice.reason}",
            *winner_sentences(self.choice),
            *self.warnings,
        )
        return html_table(caption, header, rows, notes)


def compatible_pairs(
    maps: Iterable[str] | None, objectives: Iterable[str] | None
) -> tuple[list[tuple[str, str]], list[InputError]]:
    """Return the compatible pairs of map and objective, and the errors of the other pairs.

    Parameters
    ----------
    maps, objectives: names; None means all, without `stack`, which is a choice of members.

    Raises
    ------
    InputError: a name is unknown, or no pair is compatible.
    """
    named = [name for name in MAPS if name != Stack.name] if maps is None else maps
    map_names = _known_names("maps", named, list(MAPS))
    objective_names = _known_names("objectives", objectives, list(OBJECTIVES))
    pairs: list[tuple[str, str]] = []
    errors: list[InputError] = []
    for name, objective in product(map_names, objective_names):
        try:
            configure_pair(name, objective, {})
            pairs.append((name, objective))
        except InputError as error:
            errors.append(error)
    if not pairs:
        raise errors[0]
    return pairs, errors


def _known_names(field: str, names: Iterable[str] | None, known: list[str]) -> list[str]:
    selected = known if names is None else list(names)
    check_names(field, selected, known)
    return selected


def compare(
    validation: LabelledData,
    test: LabelledData | None,
    pairs: Sequence[tuple[str, str]],
    *,
    input: Literal["logits", "probabilities"] = "logits",
    predictions: PredictionPolicy = "may_change",
    level: float | None = None,
    sample_weight: ArrayLike | None = None,
    test_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    progress: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Fit each pair of map and objective, and recommend one as `auto` would.

    Parameters
    ----------
    validation: the data for fits and cross-validation.
    test: the data for metrics; it does not affect the recommendation. None for no metrics.
    pairs: names of maps and objectives.
    predictions: which predictions the recommended map may change, as in `Auto`.
    level: confidence of the metrics' intervals, such as 0.95; none by default.
    sample_weight, test_weight: (N,) and (M,), weights of the validation and test rows, as in
        `recalib.fit` and `recalib.evaluate`: metrics are then those with a weighted form.
    weight_kind: that of `sample_weight`, as in `recalib.fit`.
    progress: called with a description of the current step.
    """
    z, y = check_data(validation.logits, validation.labels, input)
    if sample_weight is not None:
        sample_weight = as_array(sample_weight, "sample_weight")
    weights = check_weights(sample_weight, rows=len(z), field="sample_weight", kind=weight_kind)
    weights, z, y, sample_weight, scores = drop_rows_without_weight(
        weights, z, y, sample_weight, validation.logits
    )
    z, _ = mask_constants(z, y)
    if test is not None and test_weight is not None:
        test_weight = as_array(test_weight, "test_weight")
        check_weights(test_weight, rows=len(test.labels), field="test_weight")

    def measured(calibrator: Calibrator) -> dict[str, Estimate]:
        if test is None:
            return {}
        probabilities = calibrator.predict(test.logits, input=input)
        return evaluate(
            test.labels, probabilities=probabilities, sample_weight=test_weight, level=level
        )

    fit_map = partial(
        fit, scores, y, input=input, sample_weight=sample_weight, weight_kind=weight_kind
    )
    fitted, left_out = fit_pairs(pairs, z.shape[1], fit_map, progress=progress)

    def predicted(calibrator: Calibrator) -> MetricValue | None:
        p = calibrator.predict(scores, input=input)
        return calibration_error(*pairs_of_rows(p, y), weights)

    return recommend(
        [(calibrator, measured(calibrator)) for calibrator in fitted],
        left_out,
        z,
        y,
        weights,
        fit_map=fit_map,
        validation_error=predicted,
        predictions=predictions,
        progress=progress,
    )


def fit_pairs(
    pairs: Sequence[tuple[str, str]],
    classes: int,
    fit_map: FitMap,
    *,
    is_summed: bool = False,
    progress: Callable[[str], None],
) -> tuple[list[Calibrator], list[InputError]]:
    """Return the fits of the pairs, and why others cannot be fitted to K = `classes`.

    Parameters
    ----------
    is_summed: whether the rows are in several files.
    """
    fitted, left_out = [], []
    for name, objective in pairs:
        candidate = Candidate(*configure_pair(name, objective, {})).for_classes(classes)
        try:
            check_size(candidate.map, candidate.objective, classes)
            if is_summed:
                check_summable(candidate.objective)
        except InputError as error:
            left_out.append(error)
            continue
        progress(f"{name} by {objective}")
        fitted.append(fit_map(name, objective))
    return fitted, left_out


def recommend(
    fitted: Sequence[tuple[Calibrator, dict[str, Estimate]]],
    left_out: Sequence[InputError],
    logits: Floats,
    labels: Integers,
    weights: NDArray[np.float64] | None,
    *,
    fit_map: FitMap,
    validation_error: Callable[[Calibrator], MetricValue | None],
    predictions: PredictionPolicy,
    smooths: bool = True,
    progress: Callable[[str], None],
) -> Comparison:
    """Return the comparison of fitted pairs, with the map that `auto` would choose.

    Parameters
    ----------
    fitted: calibrators with their metrics on test rows.
    left_out: why pairs were left out.
    logits, labels, weights: (N, K), (N,) and (N,), checked: the rows for cross-validation. None
        for equal weights.
    fit_map: fits the recommended map, objective and options if they are not among the pairs.
    smooths: as in `choose`.
    validation_error: the calibration error of a calibrator on all validation rows.
    """
    candidates = [candidate_of(calibrator.card) for calibrator, _ in fitted]
    winner, choice = choose(
        candidates,
        logits,
        labels,
        weights,
        predictions=predictions,
        smooths=smooths,
        progress=lambda stage, i, value: progress(f"{stage}, iteration {i}"),
    )
    results = {(result.map, result.objective): result for result in choice.candidates}
    entries = tuple(
        ComparisonEntry(
            calibrator, metrics, results[calibrator.card.map, calibrator.card.objective]
        )
        for calibrator, metrics in fitted
    )
    if winner in candidates:
        recommended = fitted[candidates.index(winner)][0]
    else:  # a stack, or a reference that is not among the pairs
        recommended = fit_map(winner.map.name, winner.objective.name, **options_of(winner.map))
    card = msgspec.structs.replace(
        recommended.card, calibration_error=validation_error(recommended)
    )
    warnings = validation_warnings(card, "the recommended calibrator")
    return Comparison(entries, choice, recommended, tuple(map(str, left_out)), tuple(warnings))
