"""Split conformal classification: thresholds on a score, and the sets that they give.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.card import PredictionSets, SetMethod
from recalib.core.options import check_choice
from recalib.errors import InputError
from recalib.metrics.intervals import clopper_pearson
from recalib.sets.scores import SCORES
from recalib.stats.groups import group_counts

_Numbers = NDArray[np.float64]

#: The default.
COVERAGE = 0.9


def check_sets(method: SetMethod | None, coverage: float | None, **arguments: Any) -> None:
    """Raise `InputError` for a fit that cannot promise a coverage, by an argument that is given."""
    if method is None:
        if coverage is not None:
            raise InputError("coverage", found=f"{coverage}", accepted="only together with sets")
        return
    check_choice("sets", method, SetMethod)
    _check_coverage(COVERAGE if coverage is None else coverage)
    for name, value in arguments.items():
        if value is not None:
            accepted = "none with sets: rows are exchangeable, with one label each"
            raise InputError(name, found="given", accepted=accepted)


def _check_coverage(coverage: float) -> None:
    if not 0 < coverage < 1:
        raise InputError("coverage", found=f"{coverage}", accepted="a number above 0 and below 1")


def conformal_sets(
    p_nk: _Numbers,
    labels: NDArray[np.intp],
    method: SetMethod,
    coverage: float,
    *,
    by_class: bool = False,
) -> PredictionSets:
    """Return the thresholds of sets that hold the label of a new row with a probability `coverage`.

    The threshold is the ⌈(n + 1) coverage⌉-th smallest score of the labels of n rows. If those rows
    and the new one are exchangeable, and the map was not fitted on them, the probability is at
    least `coverage`, and for scores without ties below `coverage` + 1 / (n + 1); it is over the
    rows of the thresholds too. For given ones the coverage of new rows has a beta distribution,
    whose central 95% are the result's `low` and `high`.

    Parameters
    ----------
    p_nk: (N, K), calibrated probabilities of rows that the map was not fitted on.
    labels: (N,).
    method: a name in `SCORES`.
    coverage: in (0, 1).
    by_class: a threshold for each class, so that the promise holds for the rows of each class.
        Classes with too few rows for a finite threshold share one, which is that of their rows
        together: for them the promise holds on average.

    Raises
    ------
    InputError: an unknown method, a coverage out of range, or too few rows: fewer than
        coverage / (1 − coverage).

    Source: Vovk 2012 for the beta distribution and for thresholds by class.
    """
    check_choice("sets", method, SetMethod)
    _check_coverage(coverage)
    scores = SCORES[method](p_nk)[np.arange(len(labels)), labels]
    place = _place(len(scores), coverage)
    if place > len(scores):
        least = math.ceil(coverage / (1 - coverage))
        raise InputError(
            "rows", found=f"{len(scores)}", accepted=f"at least {least} for {coverage:g}"
        )
    low, high = scipy.special.betaincinv(place, len(scores) + 1 - place, [0.025, 0.975])
    thresholds = np.array([np.sort(scores)[place - 1]])
    if by_class:
        thresholds = _class_thresholds(scores, labels, p_nk.shape[1], coverage)
    return PredictionSets(
        method=method,
        coverage=coverage,
        thresholds=tuple(None if math.isinf(t) else float(t) for t in thresholds),
        rows=len(scores),
        low=float(low),
        high=float(high),
    )


def _place(rows: int, coverage: float) -> int:
    """Return ⌈(n + 1) coverage⌉; rounding of the product does not raise it."""
    return math.ceil((rows + 1) * coverage - 1e-9)


def _class_thresholds(
    scores: _Numbers, labels: NDArray[np.intp], classes: int, coverage: float
) -> _Numbers:
    counts = group_counts(labels, classes)
    group = np.arange(classes)
    group[[_place(n, coverage) > n for n in counts]] = classes  # those that share a threshold
    thresholds = np.full(classes + 1, np.inf)
    for k in np.unique(group[labels]):
        of_group = np.sort(scores[group[labels] == k])
        if (place := _place(len(of_group), coverage)) <= len(of_group):
            thresholds[k] = of_group[place - 1]
    return thresholds[group]


def prediction_sets(p_nk: _Numbers, sets: PredictionSets) -> NDArray[np.bool_]:
    """Return whether each class is in the set of a row, (N, K).

    Sets of `aps` and `raps` always have the most probable class. Those of `lac` may be empty: the
    probabilities of such a row are below what the rows of the thresholds had.
    """
    limits = np.array([np.inf if t is None else t for t in sets.thresholds])
    result = SCORES[sets.method](p_nk) <= limits
    result &= p_nk > 0  # a masked class is impossible
    if sets.method != "lac":
        result[np.arange(len(p_nk)), p_nk.argmax(axis=1)] = True
    return np.asarray(result)


def describe_sets(sets: PredictionSets) -> str:
    """Return a sentence about thresholds."""
    return (
        f"prediction sets ({sets.method}) hold the label of {sets.coverage:.4g} of new rows: "
        f"thresholds of {sets.rows} rows that the map has not seen, which give {sets.low:.1%} to "
        f"{sets.high:.1%}"
    )


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
    low, high = clopper_pearson(np.array([share]), np.array([rows]), tail)
    return float(low[0]), float(high[0])
