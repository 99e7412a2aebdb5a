"""The policy `auto`: select a map by cross-validation, temperature scaling by default.

Legend: N rows, K classes, C columns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers
from recalib.card import AutoChoice, CandidateResult, MetricValue
from recalib.errors import InputError
from recalib.fitting.cross_validation import (
    Candidate,
    HeldOutScores,
    Weights,
    held_out,
    mean_and_standard_error,
    random_folds,
)
from recalib.fitting.problem import Progress
from recalib.fitting.solvers import check_pair, missing_torch
from recalib.maps import MAPS
from recalib.objectives import Objective
from recalib.objectives.nll import NegativeLogLikelihood

__all__ = ["AUTO", "Auto", "choose"]

#: The name of the policy, used in place of a map's name.
AUTO = "auto"

#: The candidate maps. Maps that may change predictions compete only if the options allow it.
_COMPETING = (
    "identity", "temperature", "ensemble_temperature", "parameterized_temperature",
    "intra_order_preserving", "class_temperature", "structured_vector", "structured_matrix",
)  # fmt: skip

#: Another map must be better than temperature scaling by this many standard errors. With one
#: standard error `identity` was chosen too often, see `python -m benchmarks.selection`.
_ERRORS = 2.0
#: It must also be better by this many nats. A map that contains temperature scaling can be better
#: by the rounding of its solver in every row.
_LEAST_GAIN = 1e-5
#: Fewer rows are not cross-validated.
_MIN_CROSS_VALIDATED = 5
#: With fewer rows no map is preferred to temperature scaling: samples of 20 rows that preferred
#: `identity`, even by three standard errors, were wrong and lost up to 20% of the NLL.
_MIN_ROWS = 100
#: More logits than this are subsampled, to at least `_ENOUGH_ROWS` rows. If those rows still have
#: more logits, maps with more than one fitted number do not compete.
_MAX_LOGITS, _ENOUGH_ROWS = 2_000_000, 1_000

#: Why a map is left out that may change predictions.
_MAY_CHANGE = "it may change predictions"

_RESAMPLES = 1_000
#: More rows are summed into this many groups, which are resampled.
_MAX_GROUPS = 10_000


@dataclass(frozen=True)
class Auto:
    """The policy with its option.

    Each candidate map is cross-validated in the same folds, `random_folds`; its score is the mean
    NLL of held-out rows. Temperature scaling is selected unless

    - its best temperature is on the lower bound: separable rows determine no temperature, and the
      first new error would have an unbounded loss. Then `identity` is selected.
    - there are at least 100 rows, and another map is better by more than two standard errors of
      the paired difference and by 1e-5 nats, and not worse by more than one in Brier score.

    Of the maps that pass and are within one standard error of the best, the one with the fewest
    fitted numbers is selected. With fewer than five rows `identity` is selected. At most 2,000,000
    logits are compared, but at least 1,000 rows. The reason names a map that is better by the same
    rule and is left out because it may change predictions.
    """

    #: True to exclude maps that may change the predicted class.
    preserve_accuracy: bool = True

    def candidates(self, objective: Objective) -> list[Candidate]:
        """Return the candidates: each map that can be fitted with `objective`."""
        candidates = []
        for name in _COMPETING:
            map = MAPS[name]()
            if self.preserve_accuracy and not map.preserves_accuracy:
                continue
            try:
                check_pair(map, objective)
            except InputError:
                continue
            candidates.append(Candidate(map, objective))
        return candidates


@dataclass(frozen=True, eq=False)
class _Sample:
    """The compared rows: their weights and groups, None for equal ones and for none."""

    rows: int
    weights: Weights | None
    groups: NDArray[np.intp] | None

    @classmethod
    def of(
        cls, rows: NDArray[np.intp], weights: Weights | None, groups: NDArray[np.intp] | None
    ) -> _Sample:
        """Return the sample of some of N rows; groups are numbered from 0."""
        w = None if weights is None else weights[rows]
        if groups is None:
            return cls(len(rows), w, None)
        return cls(len(rows), w, np.unique(groups[rows], return_inverse=True)[1])

    def __len__(self) -> int:
        """Return the number of independent units."""
        return self.rows if self.groups is None else int(self.groups.max()) + 1

    @property
    def units(self) -> str:
        """The name of the independent units."""
        return "rows" if self.groups is None else "groups"

    def mean(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Return the mean of `values` (N,) and its standard error."""
        return mean_and_standard_error(values, self.weights, self.groups)


def choose(
    candidates: Sequence[Candidate],
    logits: Floats,
    labels: Integers,
    weights: Weights | None = None,
    groups: NDArray[np.intp] | None = None,
    *,
    preserve_accuracy: bool = True,
    progress: Progress | None = None,
) -> tuple[Candidate, AutoChoice]:
    """Return the candidate that `Auto` selects, and the results of the comparison.

    Parameters
    ----------
    candidates: the candidates; `identity` and `temperature` are always added.
    logits: (N, K), checked.
    labels: (N,), checked.
    weights: (N,), the weights of rows; rows of weight 0 are left out.
    groups: (N,), integers: rows of a group are in the same fold, and only groups are independent.
    preserve_accuracy: compare maps that may change predictions, but never select them.
    progress: called with the candidate, the fold and the stage, the iteration and the value of
        the objective.
    """
    rows = _rows_of(len(labels), logits.shape[1], weights)
    z, y = logits[rows], labels[rows]
    sample = _Sample.of(rows, weights, groups)
    w = sample.weights
    identity, temperature = (_reference(name, candidates) for name in ("identity", "temperature"))
    resolved = (candidate.for_classes(logits.shape[1]) for candidate in candidates)
    contenders = list(dict.fromkeys([identity, temperature, *resolved]))
    undecided = _reason_undetermined(temperature, z, y, w)
    objections = {
        candidate: undecided for candidate in contenders if undecided and candidate != identity
    }
    seconds: dict[Candidate, float] = {}
    scores: dict[Candidate, HeldOutScores] = {}
    folds = random_folds(len(y), sample.groups) if len(y) >= _MIN_CROSS_VALIDATED else None
    for candidate in contenders:
        started = time.perf_counter()
        unfit = _unfit(candidate, *z.shape)
        if folds is not None and unfit is None:
            try:
                scores[candidate] = held_out(candidate, z, y, folds, w, progress=progress)
            except InputError as error:  # a K x K matrix of very many classes
                unfit = str(error)
        seconds[candidate] = time.perf_counter() - started
        if unfit is not None:
            objections.setdefault(candidate, unfit)
        elif preserve_accuracy and not candidate.map.preserves_accuracy:
            objections.setdefault(candidate, _MAY_CHANGE)
    if undecided is not None:
        winner, reason = identity, undecided
    else:
        left_out = [candidate for candidate in scores if objections.get(candidate) == _MAY_CHANGE]
        objections |= _no_better(scores, temperature, objections, sample)
        winner, reason = _best(scores, temperature, objections, sample, z.shape[1])
        reason += _better_but_left_out(scores, winner, left_out, sample)
    measured = _score_intervals(scores, temperature, sample)
    choice = AutoChoice(
        map=winner.map.name,
        objective=winner.objective.name,
        reason=f"{winner.name}: {reason}",
        rows=len(y),
        folds=0 if folds is None else int(folds.max()) + 1,
        preserve_accuracy=preserve_accuracy,
        candidates=tuple(
            CandidateResult(
                candidate.map.name,
                candidate.objective.name,
                seconds[candidate],
                candidate == winner,
                reason
                if candidate == winner
                else objections.get(candidate, f"{winner.name} is better, or as good and simpler"),
                *measured.get(candidate, ()),
            )
            for candidate in contenders
        ),
    )
    return winner, choice


def _rows_of(count: int, classes: int, weights: Weights | None) -> NDArray[np.intp]:
    """Return the rows to compare on: those with weight, subsampled if there are too many."""
    rows = np.arange(count) if weights is None else np.flatnonzero(weights > 0)
    limit = max(_ENOUGH_ROWS, _MAX_LOGITS // classes)
    if len(rows) > limit:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:limit])
    return rows


def _reference(name: str, candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with that map, preferably by NLL; create one if there is none."""
    of_map = [candidate for candidate in candidates if candidate.map.name == name]
    by_nll = [candidate for candidate in of_map if candidate.objective.name == "nll"]
    return next(iter([*by_nll, *of_map]), Candidate(MAPS[name](), NegativeLogLikelihood()))


def _reason_undetermined(
    temperature: Candidate, logits: Floats, labels: Integers, weights: Weights | None
) -> str | None:
    """Return why these rows do not determine a temperature, or None."""
    if len(labels) < _MIN_CROSS_VALIDATED:
        return f"fewer than {_MIN_CROSS_VALIDATED} rows: {len(labels)}"
    bounds = temperature.fit(logits, labels, weights).bounds
    lowest = [bound for bound in bounds if "lower bound" in bound]
    return f"these rows determine no temperature ({lowest[0]})" if lowest else None


def _unfit(candidate: Candidate, rows: int, classes: int) -> str | None:
    """Return why a candidate does not compete on N x K logits, or None."""
    if missing := missing_torch(candidate.map, candidate.objective):
        return missing
    if candidate.count_parameters(classes) <= 1:
        return None
    if rows < _MIN_ROWS:
        return f"{rows} rows are fewer than {_MIN_ROWS}"
    if rows * classes > _MAX_LOGITS:
        return f"{rows} rows of {classes} classes are more than {_MAX_LOGITS:,} logits"
    return None


def _few(sample: _Sample) -> str:
    return f"{len(sample)} {sample.units} are fewer than {_MIN_ROWS}"


def _no_better(
    scores: Mapping[Candidate, HeldOutScores],
    temperature: Candidate,
    objections: Mapping[Candidate, str],
    sample: _Sample,
) -> dict[Candidate, str]:
    """Return the candidates that are not clearly better than temperature scaling, with reasons."""
    base, reasons = scores[temperature], {}
    for candidate, of_candidate in scores.items():
        if candidate == temperature or candidate in objections:
            continue
        if len(sample) < _MIN_ROWS:
            reasons[candidate] = _few(sample)
            continue
        gain, error = sample.mean(base.nll - of_candidate.nll)
        loss, of_brier = sample.mean(of_candidate.brier - base.brier)
        if gain <= _ERRORS * error:
            reasons[candidate] = (
                f"not better than {temperature.name} by {_ERRORS:g} standard errors: "
                f"{_lower(gain, error)}"
            )
        elif gain <= _LEAST_GAIN:
            reasons[candidate] = f"better than {temperature.name} by {gain:.2g} nats only"
        elif loss > of_brier:
            reasons[candidate] = f"Brier score higher by {loss:.3g} ± {of_brier:.2g}"
    return reasons


def _best(
    scores: Mapping[Candidate, HeldOutScores],
    temperature: Candidate,
    objections: Mapping[Candidate, str],
    sample: _Sample,
    classes: int,
) -> tuple[Candidate, str]:
    """Return the simplest candidate within one standard error of the best, and the reason."""
    passed = [
        candidate
        for candidate in scores
        if candidate not in objections and candidate != temperature
    ]
    if not passed:
        if len(sample) < _MIN_ROWS:
            return temperature, f"fewer than {_MIN_ROWS} {sample.units} prefer nothing else"
        return temperature, "no other map is clearly better on held-out folds"
    best = min(passed, key=lambda candidate: sample.mean(scores[candidate].nll)[0])
    within = []
    for candidate in passed:
        behind, error = sample.mean(scores[candidate].nll - scores[best].nll)
        if behind <= error:
            within.append(candidate)
    winner = min(within, key=lambda candidate: candidate.count_parameters(classes))
    gain, error = sample.mean(scores[temperature].nll - scores[winner].nll)
    return winner, f"better than {temperature.name} on held-out folds: {_lower(gain, error)}"


def _better_but_left_out(
    scores: Mapping[Candidate, HeldOutScores],
    winner: Candidate,
    left_out: Sequence[Candidate],
    sample: _Sample,
) -> str:
    """Return the end of the reason: the best of the maps left out that is clearly better, or ""."""
    contenders = {candidate: scores[candidate] for candidate in (winner, *left_out)}
    no_better = _no_better(contenders, winner, {}, sample)
    better = [candidate for candidate in left_out if candidate not in no_better]
    if not better:
        return ""
    best = min(better, key=lambda candidate: sample.mean(scores[candidate].nll)[0])
    gain, error = sample.mean(scores[winner].nll - scores[best].nll)
    return f"; left out, because it may change predictions: {best.name}, {_lower(gain, error)}"


def _lower(gain: float, error: float) -> str:
    return f"NLL {'lower' if gain >= 0 else 'higher'} by {abs(gain):.3g} ± {error:.2g}"


def _score_intervals(
    scores: Mapping[Candidate, HeldOutScores], temperature: Candidate, sample: _Sample
) -> dict[Candidate, tuple[MetricValue, ...]]:
    """Return NLL, Brier score and the difference of NLLs of each, with intervals."""
    if not scores:
        return {}
    base = scores[temperature].nll
    columns = np.stack([(score.nll, score.brier, score.nll - base) for score in scores.values()])
    means = _bootstrap(columns.reshape(-1, len(base)).T, sample)
    return {candidate: tuple(means[3 * i : 3 * i + 3]) for i, candidate in enumerate(scores)}


def _bootstrap(columns: NDArray[np.float64], sample: _Sample) -> list[MetricValue]:
    """Return the mean of each column of (N, C) with a 95% interval by the percentile bootstrap.

    All columns are resampled together, so differences are paired. Rows of a group are resampled
    together. Many rows are first summed into random parts, which have the same sampling
    distribution.
    """
    rng = np.random.default_rng(0)
    w = np.ones(len(columns)) if sample.weights is None else sample.weights
    weighted = np.column_stack([columns * w[:, None], w])
    if sample.groups is not None:
        weighted = np.stack([np.bincount(sample.groups, column) for column in weighted.T], axis=1)
    groups = min(len(weighted), _MAX_GROUPS)
    shuffled = weighted[rng.permutation(len(weighted))]
    sums = np.add.reduceat(shuffled, np.arange(groups) * len(weighted) // groups, axis=0)
    means = np.empty((_RESAMPLES, columns.shape[1]))
    for i in range(_RESAMPLES):
        total = np.bincount(rng.integers(groups, size=groups), minlength=groups) @ sums
        means[i] = total[:-1] / total[-1]
    values = np.average(columns, axis=0, weights=w)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return [MetricValue(*(float(x) for x in row)) for row in zip(values, low, high, strict=True)]
