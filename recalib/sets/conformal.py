"""Split conformal classification: thresholds on a score, and the sets that they give.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.core.card import Card, PredictionSets, SetGroups, SetMethod, SetOptions
from recalib.core.lazy_import import LazyModule
from recalib.core.options import check_choice
from recalib.errors import CorruptError, InputError
from recalib.ops import NumpyOps
from recalib.ops.base import Array, Ops
from recalib.sets.clusters import cluster_classes
from recalib.sets.scores import SCORES
from recalib.stats.groups import group_counts

special = LazyModule("scipy.special")


_REFERENCE = NumpyOps()
#: By how much thresholds are raised, because served probabilities are float32, and a map with few
#: values has many scores that equal the threshold: for `lac` a share of p, which may be small; for
#: sums of probabilities absolutely.
_SHARE, _OF_SUMS = 1e-5, 1e-6
#: Elements that NumPy computes at a time.
_CHUNK = 65_536


def resolve_sets(
    sets: SetMethod | SetOptions | None, coverage: float | None = None
) -> SetOptions | None:
    """Return the options of a fit by a method's name or by options; None without sets.

    Raises
    ------
    InputError: a value out of its range, or a coverage without a method or beside options.
    """
    if sets is None or isinstance(sets, SetOptions):
        if coverage is not None:
            found, accepted = f"{coverage}", "only together with the name of a method in sets"
            raise InputError("coverage", found=found, accepted=accepted)
        options = sets
    else:
        check_choice("sets", sets, SetMethod)
        options = SetOptions(method=sets)
        if coverage is not None:
            options = msgspec.structs.replace(options, coverage=coverage)
    if options is not None:
        check_choice("method", options.method, SetMethod)
        check_choice("by", options.by, SetGroups)
        check_share("coverage", options.coverage)
        if not (isinstance(options.penalty, Real) and 0 <= float(options.penalty) < math.inf):
            found = f"{options.penalty!r:.80}"
            raise InputError("penalty", found=found, accepted="a number of 0 or more")
        if not (isinstance(options.k_reg, Integral) and options.k_reg >= 0):
            found = f"{options.k_reg!r:.80}"
            raise InputError("k_reg", found=found, accepted="an integer of 0 or more")
    return options


def resolve_fields(
    sets: SetMethod | None,
    coverage: float | None,
    sets_by: SetGroups,
    sets_penalty: float | None,
    sets_k_reg: int | None,
) -> SetOptions | None:
    """Return the options of a fit by the fields of a request or command; None without sets.

    Raises
    ------
    InputError: as `resolve_sets`, with the name of the field; a field without sets, or a penalty
        without `raps`.
    """
    penalties = {"penalty": sets_penalty, "k_reg": sets_k_reg}
    given = {name: value for name, value in penalties.items() if value is not None}
    if sets != "raps":
        for name, value in given.items():
            raise InputError(f"sets_{name}", found=f"{value}", accepted="only with sets of raps")
    options = resolve_sets(sets, coverage)
    if options is None:
        if sets_by != "all":
            raise InputError("sets_by", found=sets_by, accepted="only together with sets")
        return None
    try:
        return resolve_sets(msgspec.structs.replace(options, by=sets_by, **given))
    except InputError as error:
        name = error.field if error.field == "coverage" else f"sets_{error.field}"
        raise InputError(name, found=error.found, accepted=error.accepted) from None


def check_share(name: str, value: float) -> None:
    """Raise `InputError` for what is no number between 0 and 1."""
    if not (isinstance(value, Real) and 0 < value < 1):
        raise InputError(name, found=f"{value!r:.80}", accepted="a number above 0 and below 1")


def options_of_sets(sets: PredictionSets | None) -> SetOptions | None:
    """Return the options of a fit like an earlier one; None without sets."""
    if sets is None:
        return None
    return SetOptions(**{name: getattr(sets, name) for name in SetOptions.__struct_fields__})


def check_thresholds(card: Card, sets: PredictionSets) -> None:
    """Raise `CorruptError` for thresholds that are not of the classes of a card."""
    try:
        resolve_sets(options_of_sets(sets))
    except InputError as error:
        raise CorruptError(f"the card has sets with {error}") from None
    count = len(sets.thresholds)
    if card.task == "multilabel" or count not in (1, card.classes):
        found = f"{count} thresholds of sets, of {card.classes} classes, {card.task}"
        raise CorruptError(f"the card has {found}")


def check_exchangeable(**arguments: Any) -> None:
    """Raise `InputError` for an argument that is given: with it no coverage can be promised."""
    for name, value in arguments.items():
        if value is not None:
            accepted = "none with sets or max_risk: they need exchangeable rows of one label each"
            raise InputError(name, found="given", accepted=accepted)


def conformal_sets(
    p_nk: Numbers,
    labels: NDArray[np.intp],
    options: SetOptions,
    *,
    folds: int | None = None,
) -> PredictionSets:
    """Return the thresholds of sets that hold the label of a new row with a probability `coverage`.

    The threshold is the ⌈(n + 1) coverage⌉-th smallest score of the labels of n rows, raised by the
    rounding of probabilities to float32. If those rows and the new one are exchangeable, and the
    map was not fitted on them, the probability is at least `coverage`, and for scores without ties
    below `coverage` + 1 / (n + 1); it is over the rows of the thresholds too. For given ones the
    coverage of new rows has a beta distribution, whose central 95% are the result's `low` and
    `high`; that of `aps` and `raps` is above it, because the first class is in every set.

    With thresholds by `class` or `cluster` this holds for the rows of each class or cluster. Those
    with too few rows for a finite threshold share one, which is that of their rows together: for
    them it holds on average.

    Parameters
    ----------
    p_nk: (N, K), calibrated probabilities.
    labels: (N,).
    options: of the thresholds; `by="cluster"` takes some of the rows to find the clusters.
    folds: of the probabilities, if the map was fitted on the rows too, and these are out of fold.

    Raises
    ------
    InputError: an option out of its range, or too few rows: fewer than coverage / (1 − coverage).

    Source: Vovk 2012 for the beta distribution and for thresholds by class.
    """
    resolve_sets(options)
    classes, coverage = p_nk.shape[1], options.coverage
    least = math.ceil(coverage / (1 - coverage) - 1e-9)
    scores = SCORES[options.method](_REFERENCE, p_nk, classes, options)
    scores = scores[np.arange(len(labels)), labels]
    groups = np.arange(classes) if options.by == "class" else np.zeros(classes, np.intp)
    if options.by == "cluster":
        groups, kept = cluster_classes(scores, labels, classes, coverage, least)
        scores, labels = scores[kept], labels[kept]
    if len(labels) < least:
        accepted = f"at least {least} for {coverage:g}"
        raise InputError("rows", found=f"{len(labels)}", accepted=accepted)
    counts = group_counts(groups[labels], classes + 1)
    groups = np.where(counts[groups] < least, classes, groups)  # those that share a threshold
    scores = scores + (_SHARE * (1 - scores) if options.method == "lac" else _OF_SUMS)
    thresholds, rows = _thresholds(scores, groups[labels], classes + 1, coverage)
    fewest = rows[np.isfinite(thresholds)].min(initial=len(scores))
    place = _place(fewest, coverage)
    low, high = special.betaincinv(place, fewest + 1 - place, [0.025, 0.975])
    by_class = thresholds[groups if options.by != "all" else groups[:1]]
    return PredictionSets(
        **msgspec.structs.asdict(options),
        thresholds=tuple(None if math.isinf(t) else float(t) for t in by_class),
        rows=len(scores),
        low=float(low),
        high=float(high),
        finite_sample=folds is None,
        folds=folds,
    )


def _place(rows: int, coverage: float) -> int:
    """Return ⌈(n + 1) coverage⌉; rounding of the product does not raise it."""
    return math.ceil((rows + 1) * coverage - 1e-9)


def _thresholds(
    scores: Numbers, groups: NDArray[np.intp], count: int, coverage: float
) -> tuple[Numbers, NDArray[np.intp]]:
    """Return the threshold of each group, infinite with too few rows, and its rows, (count,)."""
    rows, thresholds = group_counts(groups, count), np.full(count, np.inf)
    for group in np.flatnonzero(rows):
        if (place := _place(rows[group], coverage)) <= rows[group]:
            thresholds[group] = np.sort(scores[groups == group])[place - 1]
    return thresholds, rows


def set_scores(ops: Ops, p_nk: Array, classes: int, sets: PredictionSets) -> Array:
    """Return scores of probabilities in float64 (N, K); −∞ for a class that is in every set."""
    scores = SCORES[sets.method](ops, p_nk, classes, sets)
    if sets.method == "lac":
        return scores
    return ops.put_along(scores, ops.argmax(p_nk), -np.inf)


def set_members(
    ops: Ops, p_nk: Array, masked_nk: Array, classes: int, sets: PredictionSets
) -> Array:
    """Return whether each class is in the set of a row, (N, K), by an array backend.

    Parameters
    ----------
    p_nk: (N, K), probabilities.
    masked_nk: (N, K), true for classes that are impossible.
    """
    scores = ops.where(masked_nk, np.inf, set_scores(ops, ops.to_float64(p_nk), classes, sets))
    # Finite, so that a masked class is above.
    highest = np.finfo(np.float64).max
    return ops.less_equal(scores, np.array([highest if t is None else t for t in sets.thresholds]))


def prediction_sets(
    p_nk: NDArray[np.floating[Any]],
    sets: PredictionSets,
    masked_nk: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Return whether each class is in the set of a row, (N, K).

    Sets of `aps` and `raps` always have the most probable class. Those of `lac` may be empty: the
    probabilities of such a row are below what the rows of the thresholds had.

    Parameters
    ----------
    p_nk: (N, K), calibrated probabilities.
    masked_nk: (N, K), true for classes that are impossible, and so in no set; none by default.
    """
    result = np.empty(p_nk.shape, np.bool_)
    step = max(1, _CHUNK // p_nk.shape[1])
    for start in range(0, len(p_nk), step):
        rows = slice(start, start + step)
        masked = np.zeros((1, 1), np.bool_) if masked_nk is None else masked_nk[rows]
        result[rows] = set_members(_REFERENCE, p_nk[rows], masked, p_nk.shape[1], sets)
    return result


def coverage_options(sets: PredictionSets | None) -> dict[str, Any]:
    """Return the options of a monitor of their coverage; none without sets.

    The coverage of given thresholds differs from the promise by the spread of their rows, which is
    no drift.
    """
    if sets is None:
        return {}
    spread = max(sets.coverage - sets.low, sets.high - sets.coverage)
    return {"set_coverage": sets.coverage, "set_spread": min(spread, 0.49)}


def describe_sets(sets: PredictionSets) -> str:
    """Return a sentence about thresholds."""
    of = "" if sets.by == "all" else f" of each {sets.by}"
    about, rows = "about ", f"out-of-fold thresholds of {sets.rows} rows, which are approximate"
    if sets.adapted:
        rows = f"thresholds that followed {sets.adapted} labelled rows"
    elif sets.finite_sample:
        about, low = "", f"{sets.low:.1%}"
        ends = f"{low} to {sets.high:.1%}" if sets.method == "lac" else f"at least {low}"
        rows = f"thresholds of {sets.rows} rows that the map has not seen, which give {ends}"
    of = f"rows{of} over time" if sets.adapted else f"new rows{of}"
    start = f"prediction sets ({sets.method}) hold the label of {about}{sets.coverage:.4g} of {of}"
    return f"{start}: {rows}"


def excess_text(sets: PredictionSets, p_nk: Numbers, labels: NDArray[np.intp]) -> str:
    """Return a warning if sets miss less than half of the labels that they may, or ""."""
    found = evaluate_sets(prediction_sets(p_nk, sets), labels)
    if sets.method == "lac" or found.coverage <= max(sets.high, (1 + sets.coverage) / 2):
        return ""
    size = f"{found.coverage:.2%} of rows, with {found.mean_size:.2f} classes on average: try lac"
    return f"sets of {sets.method} always have the first class: they hold the label of {size}"


@dataclass(frozen=True)
class SetCoverage:
    """How often sets hold the label, with exact 95% intervals (Clopper and Pearson)."""

    rows: int
    #: The share of rows whose set has the label, and its interval.
    coverage: float
    low: float
    high: float
    #: Classes in a set, on average, and the share of empty sets.
    mean_size: float
    empty: float
    #: The class with the lowest share of its rows, and its interval. Intervals of this level hold
    #: the shares of all classes at once, because it is chosen among them.
    worst_class: int
    worst_coverage: float
    worst_low: float
    worst_high: float

    @property
    def text(self) -> str:
        """The numbers as a sentence."""
        return (
            f"prediction sets hold the label of {self.coverage:.2%} [{self.low:.2%}, "
            f"{self.high:.2%}] of rows, with {self.mean_size:.2f} classes on average; the least of "
            f"class {self.worst_class}: {self.worst_coverage:.2%} [{self.worst_low:.2%}, "
            f"{self.worst_high:.2%}]"
        )


def evaluate_sets(sets: NDArray[np.bool_], labels: NDArray[np.intp]) -> SetCoverage:
    """Return the coverage of sets (N, K) of labelled rows.

    Examples
    --------
    >>> sets = np.array([[True, False], [True, True], [False, True], [True, False]])
    >>> evaluate_sets(sets, np.array([0, 1, 1, 1])).coverage
    0.75
    """
    hits = sets[np.arange(len(labels)), labels]
    counts = group_counts(labels, sets.shape[1])
    with np.errstate(invalid="ignore"):
        shares = group_counts(labels[hits], sets.shape[1]) / counts
    worst = int(np.nanargmin(shares))
    size = sets.sum(axis=1)
    tail = -np.expm1(np.log1p(-0.025) / np.count_nonzero(counts))
    return SetCoverage(
        len(hits), float(hits.mean()), *_ends(hits.mean(), len(hits), 0.025),
        float(size.mean()), float((size == 0).mean()),
        worst, float(shares[worst]), *_ends(shares[worst], counts[worst], tail),
    )  # fmt: skip


def _ends(share: float, rows: int, tail: float) -> tuple[float, float]:
    from recalib.metrics.intervals import clopper_pearson  # a start needs no metrics

    low, high = clopper_pearson(np.array([share]), np.array([rows]), tail)
    return float(low[0]), float(high[0])
