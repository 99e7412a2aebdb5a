"""Selective prediction: a threshold on the confidence, below which rows are rejected.

Legend: N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.card import Rejection, RejectionOptions
from recalib.errors import InputError
from recalib.sets.conformal import check_share

#: Thresholds that may be tested, descending, and where the tests begin.
GRID = np.round(np.concatenate([np.arange(0.999, 0.995, -0.001), np.arange(199, -1, -1) / 200]), 3)
STARTS = (0.999, 0.95, 0.8, 0.5)
#: How far below the threshold a confidence is accepted: served probabilities are float32, and a map
#: with few values may have many rows at the threshold.
_ROUNDING = 1e-6


def resolve_rejection(max_risk: float | RejectionOptions | None) -> RejectionOptions | None:
    """Return the options of a fit by a risk or by options; None without.

    Raises
    ------
    InputError: a number that is not between 0 and 1.
    """
    if max_risk is None:
        return None
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
    confidence = p_nk.max(axis=1).astype(np.float64)
    return np.asarray(confidence >= rejection.threshold - _ROUNDING)


def rejection_threshold(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], options: RejectionOptions
) -> Rejection:
    """Return the lowest threshold whose accepted rows are wrong at a rate of at most `risk`.

    Of new rows with a confidence at or above the threshold, the share of wrong predictions exceeds
    `risk` with a probability of at most 1 − `sureness`, over draws of these rows, if they and the
    new ones are independent draws of one population. The rate at a threshold is tested by the exact
    binomial of its rows. From each of the four `STARTS`, tests at the level (1 − `sureness`) / 4 go
    down the fixed `GRID` until one fails, so all that succeed hold together.

    Parameters
    ----------
    confidence, correct: (N,), the largest probability of rows that the map was not fitted on, and
        whether the prediction is right.

    Raises
    ------
    InputError: a number out of range, or no threshold that succeeds.

    Source: Angelopoulos, Bates, Candès, Jordan and Lei 2021, Learn then Test, fixed sequences with
    several starts.
    """
    resolve_rejection(options)
    risk, sureness = options.risk, options.sureness
    order = np.argsort(confidence)
    first = np.searchsorted(confidence[order], GRID - _ROUNDING)
    errors_from = np.append(np.cumsum(~correct[order][::-1])[::-1], 0)
    rows, errors = len(confidence) - first, errors_from[first]
    holds = scipy.special.bdtr(errors, rows, risk) <= (1 - sureness) / len(STARTS)
    certified = []
    for start in STARTS:
        begin = int(np.argmax(start >= GRID))
        passed = int(np.argmin(np.append(holds[begin:], False)))
        certified.append(begin + passed - 1 if passed else -1)
    best = max(certified)
    if best < 0:
        found = f"{risk:g} with sureness {sureness:g} on {len(confidence)} rows"
        accepted = "a larger risk or more rows: no threshold is certain to keep it"
        raise InputError("max_risk", found=found, accepted=accepted)
    return Rejection(
        threshold=float(GRID[best]),
        risk=float(risk),
        sureness=float(sureness),
        rows=len(confidence),
        accepted=int(rows[best]),
        errors=int(errors[best]),
    )
