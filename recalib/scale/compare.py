"""Compare maps on many files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from recalib.calibrator import Calibrator
from recalib.core.arrays import WeightKind
from recalib.core.card import MetricValue, PredictionPolicy
from recalib.core.executors import Cluster, open_workers
from recalib.files import Input
from recalib.files.fragments import Source, list_fragments
from recalib.fitting.comparison import Comparison, fit_pairs, recommend
from recalib.fitting.validation_error import error_of_sums
from recalib.scale.evaluate import evaluate_all
from recalib.scale.fit import fit
from recalib.scale.rows import FragmentRows
from recalib.scale.sample_weights import list_weights, with_weights


def compare(
    validation: Source,
    test: Source,
    pairs: Sequence[tuple[str, str]],
    *,
    input: Input = "logits",
    predictions: PredictionPolicy = "may_change",
    level: float | None = None,
    sample_weight: Source | None = None,
    test_weight: Source | None = None,
    weight_kind: WeightKind = "survey",
    cluster: Cluster = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Fit each pair of map and objective to one source, measure it on another, recommend one.

    Fits and metrics are those of all rows, as `fit` and `evaluate` return them. Cross-validation is
    on the rows that `auto` compares, of an evenly spaced sample of the validation rows. Pairs that
    are not fitted to several files are left out.

    Parameters
    ----------
    validation, test: as in `recalib.files.fragments.list_fragments`; every file has labels.
    pairs: names of maps and objectives.
    input: what the files hold.
    predictions: which predictions the recommended map may change, as in `Auto`.
    level: confidence of the metrics' intervals, such as 0.95; none by default.
    sample_weight, test_weight: weights of the validation and test rows, as in `fit` and
        `evaluate`: metrics are then those with a weighted form.
    weight_kind: that of `sample_weight`, as in `fit`.
    cluster: as in `recalib.core.executors`; None: this process.
    progress: called with a description of the current step.

    Raises
    ------
    InputError: a file cannot be read, has no labels or invalid values, or other classes; weights
        are missing or invalid; no pair can be fitted.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> comparison = recalib.scale.compare("val.npz", "test.npz", [("temperature", "nll")])
    >>> comparison.recommended.card.map
    'temperature'
    """
    with open_workers(cluster) as workers:
        fragments = with_weights(list_fragments(validation), list_weights(sample_weight))
        rows = FragmentRows(workers, fragments, input)
        # Before the fits, which take longer than the names of files.
        with_weights(list_fragments(test), list_weights(test_weight))
        progress("reading")
        survey = rows.survey(weight_kind)

        fit_map = partial(
            fit,
            validation,
            input=input,
            sample_weight=sample_weight,
            weight_kind=weight_kind,
            cluster=workers,
        )
        fitted, left_out = fit_pairs(
            pairs, survey.classes, fit_map, is_summed=True, progress=progress
        )
        if not fitted:
            raise left_out[0]
        progress("measuring")
        evaluations = evaluate_all(
            test, fitted, input=input, sample_weight=test_weight, cluster=workers
        )

        def validation_error(calibrator: Calibrator) -> MetricValue | None:
            return error_of_sums(rows.describe(calibrator, measure=False).monitored)

        return recommend(
            [
                (calibrator, evaluation.finish(level))
                for calibrator, evaluation in zip(fitted, evaluations, strict=True)
            ],
            left_out,
            survey.logits,
            survey.labels,
            survey.weights,
            fit_map=fit_map,
            validation_error=validation_error,
            predictions=predictions,
            smooths=survey.rows == len(survey.labels),
            progress=progress,
        )
