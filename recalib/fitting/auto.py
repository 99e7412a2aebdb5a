"""The policy `auto`: the mixture of maps that predicts held-out rows best.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.core.blas_threads import one_blas_thread
from recalib.core.card import AutoChoice, PredictionPolicy
from recalib.core.field_types import Positive, check_fields
from recalib.errors import InputError
from recalib.fitting.auto_choice import Outcome, allows, describe, describe_default
from recalib.fitting.cross_validation import Candidate, class_scores, random_folds
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Progress
from recalib.fitting.racing import NETWORKS, REFERENCES, Entry, Race
from recalib.fitting.solvers import fits_pair, missing_torch
from recalib.fitting.winners import Sample, Winner, find_weights
from recalib.maps import MAPS
from recalib.maps.stack import Stack
from recalib.objectives import Objective
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.ops import NumpyOps
from recalib.stats.groups import group_counts

#: The name of the policy, used in place of a map's name.
AUTO = "auto"

#: The candidates, from the cheapest.
_FAMILIES = (
    "identity", "temperature", "ensemble_temperature", "isotonic", "venn_abers", "vector",
    "quadratic", "class_temperature", "structured_vector", "structured_matrix", "spline", "beta",
    "dirichlet", "matrix", "parameterized_temperature", "intra_order_preserving",
)  # fmt: skip
#: For two classes these are other forms of `vector`.
_OF_SEVERAL_CLASSES = (
    "class_temperature", "structured_vector", "structured_matrix", "dirichlet", "matrix",
)  # fmt: skip

#: With more classes `structured_matrix` stands for these, which take as long and predict alike:
#: on 16 draws of networks of 10 classes the mean NLL differed by .0001, that of a draw by .006.
_MATRICES, _MAX_MATRIX_CLASSES = ("dirichlet", "matrix"), 9

#: Fewer rows are not cross-validated.
_MIN_CROSS_VALIDATED = 5
#: Folds times rows.
_FITTED_ROWS = 6_000
#: A map with more fitted numbers than this times the rows does not compete.
_NUMBERS_PER_ROW = 10
#: With fewer rows, only maps compete that start at temperature scaling or have a prior near it.
_MIN_ROWS = 100
_FOR_FEW_ROWS = (
    "identity", "temperature", "beta", "quadratic", "structured_vector", "structured_matrix",
)  # fmt: skip
#: Networks need more rows.
_MIN_ROWS_OF_NETWORKS = 300
#: More logits than this are subsampled, to at least `_ENOUGH_ROWS` rows.
_MAX_LOGITS, _ENOUGH_ROWS = 2_000_000, 1_000
#: In nats, of all rows: what a number that is fitted gains by chance.
_LEAST_SMOOTHING_GAIN = 1.0
#: A map that may change predictions is refused if its accuracy is lower by this many standard
#: errors of the paired difference.
_REFUSED_ERRORS = 2.0


@dataclass(frozen=True)
class Auto:
    """The policy with its options.

    Each candidate map predicts held-out rows in the same random folds: 20 up to 300 rows, 5 from
    1,200 rows. The weights of the mixture of candidates that minimise the NLL of these predictions
    are the choice: a single map, or a `stack`, which is then fitted to all rows. Other maps than
    temperature scaling have a cost: a quarter of the standard error of the difference, and more
    with few rows, which prefer that. A member stays in the mixture only if it has a weight of .05
    and is worth half a row's NLL. From 1,200 rows, candidates stop after one fold if they have no
    weight there, and networks compete only if they are clearly better on 1,000 rows; these
    decisions depend on rows alone.

    If the classifier's probabilities are more likely when 1 / (N + 1) of uniform ones is mixed into
    them, as those of a forest are, all maps take this mixture. Only maps by NLL are mixed so.

    With fewer than five rows `identity` is the choice. If every row is right, the best temperature
    is 0, and held-out rows cannot say how much of it to believe. After n rows without an error the
    next one is wrong with a probability of about 1 / (n + 1) (Laplace): the choice is a mixture of
    that temperature and, with the weight 1 / (n + 1), the identity, n the rows of the rarest class.
    The uniform share is then 1 / (N + 1)², so that no new row has a loss without bound.

    At most 2,000,000 logits are compared, but at least 1,000 rows.

    Options
    -------
    predictions: `may_change`, the default, unless the accuracy of held-out rows is lower by more
        than two standard errors, then `keep`; `keep_order`, for two classes: only maps that
        increase in the log-odds everywhere, so that the order of rows by P(y = 1) stays; `keep`:
        only maps that never change the predicted class.
    preserve_accuracy: True is `keep`, False `may_change`.
    max_seconds: candidates that have not run when this time is over do not compete. Off by default:
        the result then depends on the machine.

    Source: Wolpert 1992 and Breiman 1996 for stacking; Berta et al. 2025 for the uniform share;
    Laplace 1814, the rule of succession, for rows without an error.
    """

    predictions: PredictionPolicy | None = None
    preserve_accuracy: bool | None = None
    max_seconds: Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _ = self.policy  # raises InputError

    @property
    def policy(self) -> PredictionPolicy:
        """Which predictions may change."""
        return resolve_predictions(self.predictions, self.preserve_accuracy)

    def candidates(self, objective: Objective) -> list[Candidate]:
        """Return the candidates: a map of each family that can be fitted with `objective`."""
        maps = [MAPS[name]() for name in _FAMILIES if name in MAPS]
        return [Candidate(map, objective) for map in maps if fits_pair(map, objective)]


def resolve_predictions(
    predictions: PredictionPolicy | None, preserve_accuracy: bool | None
) -> PredictionPolicy:
    """Return the policy of the two options, of which at most one is given."""
    if preserve_accuracy is None:
        return predictions or "may_change"
    if predictions is not None:
        found = "preserve_accuracy too"
        raise InputError("predictions", found=found, accepted="one of the two")
    return "keep" if preserve_accuracy else "may_change"


@one_blas_thread()
def choose(
    candidates: Sequence[Candidate],
    logits: Floats,
    labels: Integers,
    weights: Numbers | None = None,
    groups: NDArray[np.intp] | None = None,
    *,
    predictions: PredictionPolicy = "may_change",
    smooths: bool = True,
    max_seconds: float | None = None,
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
    predictions, max_seconds: as in `Auto`.
    smooths: whether uniform probabilities may be mixed into the classifier's.
    progress: called with the candidate, the fold and the stage, the iteration and the value of
        the objective.

    Raises
    ------
    InputError: `keep_order` with more than two classes.
    """
    classes = logits.shape[1]
    if predictions == "keep_order" and classes != 2:
        raise InputError(
            "predictions", found=f"keep_order with {classes} classes", accepted="keep or may_change"
        )
    rows = _rows_of(len(labels), classes, weights)
    # float64, so that near ties do not depend on the type of the logits.
    z, y = logits[rows].astype(np.float64), labels[rows]
    sample = Sample(len(labels), weights, groups).subset(rows)
    identity, temperature = (_reference(name, candidates) for name in REFERENCES)
    resolved = (candidate.for_classes(classes) for candidate in candidates)
    contenders = list(dict.fromkeys([identity, temperature, *resolved]))
    if sample.size < _MIN_CROSS_VALIDATED:
        kind = "rows" if weights is None else "effective rows"
        reason = f"fewer than {_MIN_CROSS_VALIDATED} {kind}: {sample.size:.3g}"
        return identity, describe_default(identity, contenders, reason, len(y), predictions)
    undetermined = _reason_undetermined(z, y, sample.weights)
    # Members of a stack are fitted by NLL.
    smooths &= temperature.objective.name == "nll"
    smoothing = _best_smoothing(z, y, sample, undetermined) if smooths else 0.0
    race = Race(
        Stack(smoothing=smoothing).smooth(NumpyOps(), z),
        y,
        sample.weights,
        random_folds(len(y), sample.groups, fitted_rows=_FITTED_ROWS),
        max_seconds,
        progress,
    )
    entries = _run(race, contenders, sample, undetermined)
    outcome = _decide(entries, race, sample, z, predictions, smoothing, undetermined)
    of_candidate = {entry.candidate: entry for entry in outcome.entries}
    choice = outcome.winner.candidate(
        smoothing, lambda candidate: race.with_strength(of_candidate[candidate])
    )
    return choice, describe(outcome, choice.map.name)


def _rows_of(count: int, classes: int, weights: Numbers | None) -> NDArray[np.intp]:
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


def _reason_undetermined(logits: Floats, labels: Integers, weights: Numbers | None) -> str | None:
    """Return why these rows do not determine a temperature, or None."""
    fit = fit_temperature(logits, labels, weights)
    if fit.end == "lower":
        return f"these rows determine no temperature: the best is the least, {fit.temperature:.3g}"
    return None


def _best_smoothing(
    logits: Floats, labels: Integers, sample: Sample, undetermined: str | None
) -> float:
    """Return the share of uniform probabilities, 1 / (N + 1) or 0 by the likelihood of a fit.

    N rows without an error do not show whether the next one has a loss without bound. The share
    1 / (N + 1)² bounds that of the identity at 2 log (N + 1) + log K nats.
    The fit has few numbers, and the same with and without, so the rows may be those of the fit:
    for two classes a slope and an intercept, otherwise a temperature.
    """
    smoothing = 1 / (sample.size + 1)
    if undetermined is not None:
        return smoothing**2
    map = MAPS["vector" if logits.shape[1] == 2 else "temperature"]()
    candidate = Candidate(map, NegativeLogLikelihood())
    smooth = Stack(smoothing=smoothing).smooth(NumpyOps(), logits)
    with_share, without = (
        candidate.fit(z, labels, sample.weights).objective for z in (smooth, logits)
    )
    return smoothing if len(labels) * (without - with_share) > _LEAST_SMOOTHING_GAIN else 0.0


def _run(
    race: Race, contenders: Sequence[Candidate], sample: Sample, undetermined: str | None
) -> list[Entry]:
    """Return the entries of the contenders that compete, then those that do not."""
    reasons = {candidate: _unfit(candidate, *race.logits.shape) for candidate in contenders}
    if undetermined is not None:
        reasons = {c: "" if c.map.name in REFERENCES else undetermined for c in contenders}

    def survivors(entries: Sequence[Entry], rows: NDArray[np.intp]) -> set[Candidate]:
        return _survivors(entries, race.labels, sample, rows)

    entries = race.run([c for c in contenders if not reasons[c]], survivors)
    left_out = [Entry(c, race.logits[:0], reason=reasons[c]) for c in contenders if reasons[c]]
    return [*entries, *left_out]


def _unfit(candidate: Candidate, rows: int, classes: int) -> str:
    """Return why a candidate does not compete on N x K logits, or ""."""
    if missing := missing_torch(candidate.map, candidate.objective):
        return missing
    if rows < _MIN_ROWS and candidate.map.name not in _FOR_FEW_ROWS:
        return f"{rows} rows are fewer than {_MIN_ROWS}"
    if candidate.map.name in NETWORKS and rows < _MIN_ROWS_OF_NETWORKS:
        return f"{rows} rows are fewer than {_MIN_ROWS_OF_NETWORKS}"
    if classes == 2 and candidate.map.name in _OF_SEVERAL_CLASSES:
        return "for two classes it is a form of vector"
    if classes > 2 and candidate.map.name == "venn_abers":
        return "for more than two classes it has a curve for each"
    most = candidate.map.max_classes
    if most is not None and classes > most:
        return f"{classes} classes are more than {most}"
    if classes > _MAX_MATRIX_CLASSES and candidate.map.name in _MATRICES:
        return f"above {_MAX_MATRIX_CLASSES} classes structured_matrix stands for it"
    count = candidate.count_parameters(classes)
    if candidate.map.fitted_by == "gradient" and count > _NUMBERS_PER_ROW * rows:
        return f"{count:,} numbers are more than {_NUMBERS_PER_ROW} for each row"
    return ""


def _survivors(
    entries: Sequence[Entry], labels: Integers, sample: Sample, rows: NDArray[np.intp]
) -> set[Candidate]:
    """Return the candidates that may still win, by the rows with these indices."""
    part, y = sample.subset(rows), labels[rows]
    partial = [replace(entry, log_p=entry.log_p[rows]) for entry in entries]
    result = {entry.candidate for entry in entries if entry.candidate.map.name in REFERENCES}
    for policy in _policies(entries[0].log_p.shape[1]):
        allowed = [entry for entry in partial if allows(policy, entry.candidate)]
        result |= set(find_weights(allowed, y, part, price=0))
    return result


def _policies(classes: int) -> tuple[PredictionPolicy, ...]:
    return ("may_change", "keep_order", "keep") if classes == 2 else ("may_change", "keep")


def _decide(
    entries: Sequence[Entry],
    race: Race,
    sample: Sample,
    logits: Floats,
    predictions: PredictionPolicy,
    smoothing: float,
    undetermined: str | None,
) -> Outcome:
    """Return the winner of each policy, and the one that is chosen."""
    y, competing = race.labels, [entry for entry in entries if not entry.reason]
    winners = {}
    for policy in _policies(logits.shape[1]):
        allowed = [entry for entry in competing if allows(policy, entry.candidate)]
        weights = (
            find_weights(allowed, y, sample)
            if undetermined is None
            else _weights_without_errors(allowed, y, logits.shape[1])
        )
        winners[policy] = Winner.of(weights, allowed, y)
    outcome = Outcome(
        predictions=predictions,
        chosen=predictions,
        entries=entries,
        scores={e.candidate: class_scores(e.log_p.astype(np.float64), y) for e in competing},
        winners=winners,
        sample=sample,
        predicted=logits.argmax(axis=1),
        folds=int(race.folds.max()) + 1,
        smoothing=smoothing,
        undetermined=undetermined,
    )
    return _refuse(outcome, competing, y) if predictions == "may_change" else outcome


def _weights_without_errors(
    entries: Sequence[Entry], labels: Integers, classes: int
) -> dict[Candidate, float]:
    """Return the weights of the references for rows without an error, by Laplace's rule."""
    share = 1 / (int(group_counts(labels, classes).min()) + 1)
    of_name = {entry.candidate.map.name: entry.candidate for entry in entries}
    identity, temperature = (of_name[name] for name in REFERENCES)
    if share == 1 or temperature.objective.name != "nll":
        return {identity: 1.0}
    return {temperature: 1 - share, identity: share}


def _refuse(outcome: Outcome, entries: Sequence[Entry], labels: Integers) -> Outcome:
    """Return the outcome with a choice whose accuracy is not credibly worse than that of `keep`.

    It is the best of the candidates of which this is true, or the winner of `keep`.
    """

    def is_worse(winner: Winner) -> bool:
        loss, error = outcome.accuracy_loss(winner)
        return loss > _REFUSED_ERRORS * error

    best = outcome.winners["may_change"]
    if not is_worse(best):
        return outcome
    single = (Winner.of({entry.candidate: 1.0}, [entry], labels) for entry in entries)
    pairs = zip(entries, single, strict=True)
    accurate = [entry for entry, winner in pairs if not is_worse(winner)]
    other = Winner.of(find_weights(accurate, labels, outcome.sample), accurate, labels)
    if is_worse(other):
        return replace(outcome, chosen="keep", refused=best)
    winners = {**outcome.winners, "may_change": other}
    return replace(outcome, winners=winners, refused=best)
