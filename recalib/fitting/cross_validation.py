"""Cross-validation of candidates, and their comparison on held-out rows.

Legend: N rows, K classes. Labels are (N,), the true classes; or booleans (N, K) of K independent
labels, with log-odds as logits. The likelihood of a row is then the product over its labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import msgspec
import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats, Integers, Numbers
from recalib.core.card import Selection
from recalib.core.masks import mask_constants
from recalib.drift.target import pairs_of_rows
from recalib.fitting.problem import Problem, Progress, Solution
from recalib.fitting.promotion import THRESHOLD, Gain, decide
from recalib.fitting.solvers import solve
from recalib.fitting.strength import with_strength
from recalib.fitting.validation_error import calibration_error
from recalib.maps import Map, Parameters
from recalib.maps.identity import Identity
from recalib.maps.labels import LabelIdentity, LabelMap
from recalib.objectives import Objective
from recalib.ops import NumpyOps
from recalib.stats.groups import group_sums

#: The numbers of folds for few and for many rows. A fit to 95% of the rows has nearly the error of
#: the fit to all; a fit to 80% has a quarter more: record 0009.
_MAX_FOLDS, _MIN_FOLDS = 20, 5
#: Folds times rows, which limits the time of all fits.
_FITTED_ROWS = 40_000
#: The fold of a row that is in every fit and is not scored.
_NO_FOLD = -1
#: Numbers of a block of predictions: 32 MB of float64.
_BLOCK = 4_000_000


@dataclass(frozen=True)
class Candidate:
    """A map and an objective, which can be fitted to any rows."""

    map: Map
    objective: Objective

    @property
    def name(self) -> str:
        """The name in messages."""
        by = "" if self.objective.name == "nll" else f" by {self.objective.name}"
        return f"{self.map.name}{by}"

    def for_classes(self, classes: int) -> Self:
        """Return the candidate that is fitted to K = `classes`; see `Map.for_classes`."""
        return replace(self, map=self.map.for_classes(classes))

    def count_parameters(self, classes: int) -> int:
        """Return the number of fitted numbers for K = `classes`, as far as rows have no part."""
        shapes = (array.shape for array in self.map.parameters(classes).values())
        return sum(math.prod(filter(None, shape)) for shape in shapes)

    def fit(
        self,
        logits: Floats,
        labels: NDArray[Any],
        weights: Numbers | None = None,
        progress: Progress | None = None,
    ) -> Solution:
        """Return a fit to checked rows, whose weights (N,) are those of a `Problem`."""
        problem = Problem(self.map, self.objective, logits, labels, weights, progress=progress)
        return solve(problem)

    def with_strength(
        self, logits: Floats, labels: NDArray[Any], weights: Numbers | None = None
    ) -> Self:
        """Return the candidate with strengths of penalties that these rows choose.

        A choice takes several times as long as a fit with given strengths.
        """
        problem, _ = with_strength(Problem(self.map, self.objective, logits, labels, weights))
        return replace(self, map=problem.map)


@dataclass(frozen=True, eq=False)
class Refit:
    """A candidate that is fitted to M rows of its own, in the folds of N other rows."""

    candidate: Candidate
    #: (M, K) and (M,), checked.
    logits: Floats
    labels: NDArray[Any]
    #: (M,), the index of the same row among the N rows, and the row is in its fold; −1 for a row
    #: that is not among them.
    positions: NDArray[np.intp]

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.candidate.name


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of each row under a fit to the other folds; each (N,).

    Of independent labels, scores are sums over labels.
    """

    nll: NDArray[np.float64]
    brier: NDArray[np.float64]
    #: What monitoring compares, see `recalib.drift.target.pairs_of_rows`. Of independent labels,
    #: the smallest probability of a predicted value, and whether all are correct.
    probability: NDArray[np.float64]
    outcome: NDArray[np.bool_]

    @classmethod
    def empty(cls, rows: int) -> Self:
        """Return scores of undefined values."""
        return cls(np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows, np.bool_))

    def set(self, rows: NDArray[np.bool_] | slice, scores: HeldOutScores) -> None:
        """Assign the scores of the rows that a mask (N,) or a slice selects."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(scores, field.name)

    def subset(self, rows: NDArray[np.bool_]) -> Self:
        """Return the scores of the rows that a mask (N,) selects."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


def compare_by_cross_validation(
    candidate: Candidate,
    reference: Candidate | Refit | Calibrator,
    logits: Floats,
    labels: NDArray[Any],
    *,
    rows: NDArray[np.bool_] | None = None,
    earlier: Sequence[Gain] = (),
    growth: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Return whether `candidate` is promoted over `reference`, see `recalib.fitting.promotion`.

    The score is the negative log-likelihood of each compared row under a fit to the other folds of
    `random_folds`. A reference that was fitted on compared rows must be refitted in the same folds:
    a candidate to these rows, a `Refit` to its own rows. A calibrator that was fitted on none of
    them is used unchanged. The standard error is that of the paired difference.

    Some rows do not allow a comparison, and the candidate is then not better: if every held-out
    label has a probability above one half, more confident candidates always score better, because
    the scores include no error; and labels of a single class have no information on the others.

    If a policy selected the candidate on these rows, its score is slightly optimistic, because the
    policy is not repeated in each fold.

    Parameters
    ----------
    logits: (N, K), checked.
    labels: (N,), checked.
    rows: (N,), whether a row is compared, all by default; the others are in every fit.
    earlier: gains of earlier refits over this reference, oldest first, on other rows.
    growth: the candidate's rows divided by the reference's, if both are of the same map and
        options.
    progress: called with the number of finished folds and the number of folds.
    """
    if labels.ndim == 1:
        logits, _ = mask_constants(logits, labels)
        if isinstance(reference, Refit):
            masked, _ = mask_constants(reference.logits, reference.labels)
            reference = replace(reference, logits=masked)
    compared = np.ones(len(labels), np.bool_) if rows is None else rows
    folds = np.full(len(labels), _NO_FOLD, np.int64)
    folds[compared] = random_folds(int(np.count_nonzero(compared)))
    count = int(folds.max()) + 1
    name = reference.card.map if isinstance(reference, Calibrator) else reference.name
    if count < 2:
        return Selection(
            folds=count, nll=0.0, reference=name, reference_nll=0.0, standard_error=0.0,
            better=False, reason="one row cannot be cross-validated", rows=count,
        )  # fmt: skip

    def on_fold(fold: int) -> None:
        if progress is not None:
            progress(fold, count if isinstance(reference, Calibrator) else 2 * count)

    ours = held_out(candidate, logits, labels, folds, on_fold=on_fold)
    if isinstance(reference, Calibrator):
        theirs = _score_fitted(reference, logits[compared], labels[compared])
    else:
        theirs = held_out(
            reference, logits, labels, folds, on_fold=lambda fold: on_fold(count + fold)
        )
    names = candidate.name, name
    return _decide(names, count, ours, theirs, labels[compared], earlier=earlier, growth=growth)


def compare_as_fitted(
    calibrator: Calibrator, reference: Calibrator | None, logits: Floats, labels: NDArray[Any]
) -> Selection:
    """Return whether a calibrator is promoted over another, on rows that neither was fitted on.

    The rule is that of `compare_by_cross_validation`, without folds and earlier refits.

    Parameters
    ----------
    reference: None for the uncalibrated probabilities.
    logits: (N, K), checked; N ≥ 2.
    labels: (N,), checked.
    """
    ours = _score_fitted(calibrator, logits, labels)
    if reference is None:
        identity = LabelIdentity() if labels.ndim == 2 else Identity()
        theirs = _score(identity, {}, logits, labels)
    else:
        theirs = _score_fitted(reference, logits, labels)
    names = calibrator.card.map, "identity" if reference is None else reference.card.map
    return _decide(names, 0, ours, theirs, labels, sample="rows that it was not fitted on")


def _decide(
    names: tuple[str, str],
    folds: int,
    ours: HeldOutScores,
    theirs: HeldOutScores,
    labels: NDArray[Any],
    *,
    earlier: Sequence[Gain] = (),
    growth: float | None = None,
    sample: str = "held-out folds",
) -> Selection:
    """Return the decision from the scores of challenger and champion on the same rows.

    Parameters
    ----------
    names: of challenger and champion.
    earlier, growth, sample: as in `decide`.
    """
    name, reference = names
    mean, error = mean_and_standard_error(theirs.nll - ours.nll)
    selection = Selection(
        folds=folds,
        nll=float(ours.nll.mean()),
        reference=reference,
        reference_nll=float(theirs.nll.mean()),
        standard_error=error,
        better=False,
        reason="",
        rows=len(ours.nll),
        # The calibration error of what is monitored; independent labels have no single one.
        calibration_error=None
        if labels.ndim == 2
        else calibration_error(ours.probability, ours.outcome),
    )
    unknown = incomparable(ours, labels)
    if unknown is not None:
        reason = f"{name} cannot be compared with {reference}: {unknown}"
        return msgspec.structs.replace(selection, reason=reason)
    gain = Gain(len(ours.nll), mean, error)
    decision = decide(
        name, reference, gain,
        champion_nll=selection.reference_nll, earlier=earlier, growth=growth, sample=sample,
    )  # fmt: skip
    return msgspec.structs.replace(
        selection,
        better=decision.rule is not None,
        reason=decision.reason,
        threshold=THRESHOLD,
        rule=decision.rule,
        pooled=decision.pooled,
    )


def held_out(
    candidate: Candidate | Refit,
    logits: Floats,
    labels: NDArray[Any],
    folds: NDArray[np.int64],
    weights: Numbers | None = None,
    *,
    progress: Progress | None = None,
    on_fold: Callable[[int], None] | None = None,
) -> HeldOutScores:
    """Return the scores of each row that has a fold, under a fit to all rows but its fold's.

    Parameters
    ----------
    folds: (N,), from 0; at least two. A row of fold −1 is in every fit.
    weights: weights of the rows in the fits, (N,), or (M,) for a `Refit`.
    progress: the progress callback of the fits.
    on_fold: called with the number of finished folds.
    """
    scores = HeldOutScores.empty(len(labels))
    fits = fold_fits(candidate, logits, labels, folds, weights, progress=progress)
    for fold, (out, map, parameters) in enumerate(fits):
        scores.set(out, _score(map, parameters, logits[out], labels[out]))
        if on_fold is not None:
            on_fold(fold + 1)
    return scores.subset(folds >= 0)


def fold_fits(
    candidate: Candidate | Refit,
    logits: Floats,
    labels: NDArray[Any],
    folds: NDArray[np.int64],
    weights: Numbers | None = None,
    *,
    only: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[NDArray[np.bool_], Map, Parameters]]:
    """Yield the rows of each fold (N,), the map, and its fit to the other folds; see `held_out`.

    Parameters
    ----------
    only: the numbers of the folds; None for all.
    """
    count = int(folds.max()) + 1
    refit = candidate
    if isinstance(refit, Candidate):
        refit = Refit(refit, logits, labels, np.arange(len(labels)))
    # One strength for all folds: a single number of all rows hardly favours the held-out ones.
    the_candidate = refit.candidate.with_strength(refit.logits, refit.labels, weights)
    own_folds = np.where(refit.positions < 0, _NO_FOLD, folds[refit.positions])
    for fold in range(count) if only is None else only:
        training = own_folds != fold
        training_weights = None if weights is None else weights[training]
        fold_progress = _with_title(progress, f"{candidate.name}, fold {fold + 1} of {count}")
        fit = the_candidate.fit(
            refit.logits[training], refit.labels[training], training_weights, fold_progress
        )
        yield folds == fold, refit.candidate.map, fit.parameters


def _with_title(progress: Progress | None, title: str) -> Progress | None:
    """Return `progress` with `title` added to the stages."""
    if progress is None:
        return None
    return lambda stage, iteration, value: progress(f"{title}: {stage}", iteration, value)


def random_folds(
    rows: int, groups: NDArray[np.intp] | None = None, *, fitted_rows: int = _FITTED_ROWS
) -> NDArray[np.int64]:
    """Return the fold of each row (N,), at random and deterministic, with sizes that differ by 1.

    With `groups` (N,), from 0, the rows of a group have the same fold; numbers of groups differ by
    1, and there are at most as many folds as groups.

    There are `fitted_rows` / N folds, between 5 and 20, and at most N. By default these are 20 up
    to 2,000 rows and 5 from 8,000 rows. Folds are not stratified by label: a stratified fold has
    the class shares of the rows of the fit, which new rows do not have, and so it hides the error
    of an intercept for each class.
    """
    units = rows if groups is None else int(groups.max()) + 1
    count = min(units, max(_MIN_FOLDS, min(_MAX_FOLDS, fitted_rows // max(rows, 1))))
    folds: NDArray[np.int64] = np.random.default_rng(0).permutation(units) % count
    return folds if groups is None else folds[groups]


def effective_size(
    rows: int, weights: Numbers | None = None, groups: NDArray[np.intp] | None = None
) -> float:
    """Return the effective number of independent rows, or of groups of rows.

    Parameters
    ----------
    weights: (N,), with the effective number of rows as their sum, see `check_weights`.
    groups: (N,), from 0; their number is (Σ w)² / Σ w² with w summed over each group.
    """
    if groups is None:
        return float(rows) if weights is None else float(weights.sum())
    sums = group_sums(groups, weights)
    return float(sums.sum() ** 2 / (sums @ sums))


def mean_and_standard_error(
    values: NDArray[np.float64],
    weights: Numbers | None = None,
    groups: NDArray[np.intp] | None = None,
) -> tuple[float, float]:
    """Return the mean of `values` (N,) and its standard error, N ≥ 2.

    With weights, the mean Σ w v / Σ w and √(N / (N − 1) Σ w² (v − mean)²) / Σ w, which is
    the usual one for equal weights. With `groups` (N,), from 0, w (v − mean) is summed over each
    group before it is squared, and N is the number of groups: only groups are independent.
    """
    w = np.ones(len(values)) if weights is None else weights
    mean = float(np.average(values, weights=w))
    by_row = w * (values - mean)
    residuals = by_row if groups is None else group_sums(groups, by_row)
    n = len(residuals)
    error = float(np.sqrt(n / (n - 1) * np.sum(residuals**2)) / w.sum())
    return mean, error


def incomparable(scores: HeldOutScores, labels: NDArray[Any]) -> str | None:
    """Return why held-out scores do not limit confidence, or None."""
    is_multilabel = labels.ndim == 2
    if (labels == labels[0]).all():
        if is_multilabel:
            return "all rows have the same labels, so the rows show nothing about the others"
        return f"all labels are of class {labels[0]}, so the rows show nothing about the others"
    if scores.outcome.all() if is_multilabel else scores.nll.max() < math.log(2):
        return "every held-out row was predicted correctly, so the rows do not limit the confidence"
    return None


def _score_fitted(calibrator: Calibrator, logits: Floats, labels: NDArray[Any]) -> HeldOutScores:
    masked = logits if calibrator.card.mask is None else calibrator.card.mask.apply_to(logits)
    return _score(calibrator.map, calibrator.parameters, masked, labels)


def _score(map: Map, parameters: Parameters, logits: Floats, labels: NDArray[Any]) -> HeldOutScores:
    """Return the scores of rows (N, K), computed in blocks."""
    ops = NumpyOps()
    scores = HeldOutScores.empty(len(labels))
    step = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(labels), step):
        rows = slice(start, start + step)
        z = logits[rows].astype(np.float64, copy=False)
        if isinstance(map, LabelMap):
            odds = map.transform(ops, z, parameters)
            scores.set(rows, _label_scores(odds, labels[rows]))
            continue
        scores.set(rows, class_scores(map.log_probabilities(ops, z, parameters), labels[rows]))
    return scores


def class_scores(log_p: Floats, labels: Integers) -> HeldOutScores:
    """Return the scores of log-probabilities (N, K) with labels (N,)."""
    rows = np.arange(len(labels))
    p = np.exp(log_p)
    probability, outcome = pairs_of_rows(p, labels)
    p[rows, labels] -= 1
    return HeldOutScores(
        # The limit is for mixtures whose terms all underflow: p < 1e-323 is not 0.
        nll=np.minimum(-log_p[rows, labels], 750.0),
        brier=np.einsum("ij,ij->i", p, p),
        probability=probability,
        outcome=outcome.astype(np.bool_),
    )


def _label_scores(log_odds: NDArray[np.float64], labels: NDArray[np.bool_]) -> HeldOutScores:
    """Return the scores of rows with calibrated log-odds and labels (n, K)."""
    log_p = scipy.special.log_expit(np.where(labels, log_odds, -log_odds))
    return HeldOutScores(
        nll=-log_p.sum(axis=1),
        brier=2 * np.square(np.expm1(log_p)).sum(axis=1),  # two classes, as in `evaluate_labels`
        probability=scipy.special.expit(np.abs(log_odds)).min(axis=1),
        outcome=((log_odds > 0) == labels).all(axis=1),
    )
