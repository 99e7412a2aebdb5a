"""Selective prediction: a threshold on the confidence, below which rows are rejected.

Legend: N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.card import ConfidenceHistogram, Rejection, RejectionOptions
from recalib.errors import InputError
from recalib.ops import NumpyOps
from recalib.ops.base import Array, Ops
from recalib.sets.conformal import check_share

#: Thresholds that may be tested, descending; a card's histogram adds its edges.
GRID = np.round(np.concatenate([np.arange(0.999, 0.995, -0.001), np.arange(199, -1, -1) / 200]), 3)
#: Where the tests begin: at these edges from the top, of 14 that divide the rows in equal parts; so
#: at the most confident 7%, 13% and 40%. More starts share the level, fewer are left without rows.
EDGES = (1, 2, 6)
#: Without edges.
STARTS = (0.999, 0.95, 0.8, 0.5)
#: How far below the threshold a confidence is accepted: served probabilities are float32, and a map
#: with few values may have many rows at the threshold.
_ROUNDING = 1e-6


def resolve_rejection(max_risk: float | RejectionOptions) -> RejectionOptions:
    """Return the options of a fit by a risk or by options.

    Raises
    ------
    InputError: a number that is not between 0 and 1.
    """
    options = max_risk
    if not isinstance(options, RejectionOptions):
        options = RejectionOptions(risk=options)
    for name, value in {"max_risk": options.risk, "sureness": options.sureness}.items():
        check_share(name, value)
    return options


def check_not_folds(risk: float | None, sets_folds: int | None) -> None:
    """Raise `InputError` for a risk with out-of-fold sets: it needs rows that no fit has seen."""
    if risk is not None and sets_folds is not None:
        accepted = "only without sets_folds: on rows that the map has not seen"
        raise InputError("max_risk", found=f"{risk:g}", accepted=accepted)


def accepts(p_nk: NDArray[np.floating[Any]], rejection: Rejection) -> NDArray[np.bool_]:
    """Return whether the largest probability of each row (N, K) reaches the threshold, (N,)."""
    return np.asarray(accepted_rows(NumpyOps(), p_nk, rejection))[:, 0]


def accepted_rows(ops: Ops, p_nk: Array, rejection: Rejection) -> Array:
    """Return the same by an array backend, (N, 1)."""
    return ops.greater_equal(ops.to_float64(ops.max(p_nk)), rejection.threshold - _ROUNDING)


def threshold_grid(reference: ConfidenceHistogram | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the thresholds of the tests, descending, and the places in them of the starts.

    Parameters
    ----------
    reference: of other rows than those of the tests, so that thresholds and starts are fixed.
    """
    edges = np.array(() if reference is None else reference.edges)
    if reference is not None and reference.target == "positive_class":
        edges = np.maximum(edges, 1 - edges)
    edges = np.unique(edges)[::-1]
    starts = edges[np.minimum(EDGES, edges.size) - 1] if edges.size else np.array(STARTS)
    grid = np.unique(np.concatenate([GRID, edges]))[::-1]
    return grid, np.searchsorted(-grid, -starts)


def rejection_threshold(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    options: RejectionOptions,
    reference: ConfidenceHistogram | None,
) -> Rejection:
    """Return the lowest threshold whose accepted rows are wrong at a rate of at most `risk`.

    Of new rows with a confidence at or above the threshold, the share of wrong predictions exceeds
    `risk` with a probability of at most 1 − `sureness`, over draws of these rows, if they and the
    new ones are independent draws of one population. The rate at a threshold is tested by the exact
    binomial of its rows, whose number may be random: given it, their errors are independent. Each
    start has an equal part of the level 1 − `sureness`. The tests go down from it, and the level of
    a test that succeeds is passed on to the next one, so all that succeed hold together.

    Parameters
    ----------
    confidence, correct: (N,), the largest probability of rows that the map was not fitted on, and
        whether the prediction is right.
    reference: a histogram of confidences of other rows, such as those of the map. Quantiles of
        these rows would not do: which threshold is the first false one would depend on them.

    Raises
    ------
    InputError: a number out of range, or no threshold that succeeds.

    Source: Angelopoulos, Bates, Candès, Jordan and Lei 2021, Learn then Test, fixed sequences with
    several starts; Wiens 2003, A fixed sequence Bonferroni procedure, for the level passed on.
    """
    resolve_rejection(options)
    risk, sureness = options.risk, options.sureness
    grid, starts = threshold_grid(reference)
    order = np.argsort(confidence)
    rows = len(confidence) - np.searchsorted(confidence[order], grid - _ROUNDING)
    errors = np.append(0, np.cumsum(~correct[order[::-1]]))[rows]
    added = (1 - sureness) * np.mean(starts[:, None] == np.arange(len(grid)), axis=0)
    best, level = -1, 0.0
    for place, p_value in enumerate(scipy.special.bdtr(errors, rows, risk)):
        level += added[place]
        level = level if p_value <= level else 0.0
        best = place if level else best
    if best < 0:
        found = f"{risk:g} with sureness {sureness:g} on {len(confidence)} rows"
        accepted = "a larger risk or more rows: no threshold is certain to keep it"
        raise InputError("max_risk", found=found, accepted=accepted)
    counts = {"rows": len(confidence), "accepted": int(rows[best]), "errors": int(errors[best])}
    return Rejection(
        threshold=float(grid[best]), risk=float(risk), sureness=float(sureness), **counts
    )
