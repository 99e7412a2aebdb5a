"""Adaptive conformal inference: thresholds of prediction sets that follow labelled rows."""

from __future__ import annotations

import math
from numbers import Real

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.card import PredictionSets
from recalib.errors import InputError
from recalib.ops import NumpyOps
from recalib.sets.scores import SCORES


def adapt_sets(
    p_nk: NDArray[np.float64], labels: NDArray[np.intp], sets: PredictionSets, rate: float
) -> PredictionSets:
    """Return thresholds q after labelled rows, in their order: q + rate (missed − (1 − coverage)).

    A row whose score is above the threshold makes sets larger, others make them a little smaller.
    Over T rows, whatever their order and however they drift, the share of rows with a score up to
    the threshold of that time is within (B + rate) / (rate T) of the coverage, for scores between 0
    and B: 1, and of `raps` the penalties too. With J thresholds it is within J times that. Sets of
    `lac` hold the label of these rows, those of `aps` and `raps` of more: they have the most
    probable class too.

    Source: Gibbs and Candès 2021, in the form of Angelopoulos, Candès and Tibshirani 2023, which
    moves the threshold instead of its level.

    Parameters
    ----------
    p_nk: (N, K), calibrated probabilities of the rows.
    labels: (N,).
    rate: above 0, in the unit of scores. Larger ones follow a drift sooner, and vary more.
    """
    if not (isinstance(rate, Real) and 0 < rate < math.inf):
        raise InputError("rate", found=f"{rate!r:.80}", accepted="a number above 0")
    classes = p_nk.shape[1]
    # Not -inf for the class that is always in the set: such rows would lower thresholds for ever.
    scores = SCORES[sets.method](NumpyOps(), p_nk, classes, sets)
    # Of a threshold without a limit, the largest score there is.
    highest = 1.0 + (sets.penalty * max(classes - sets.k_reg, 0) if sets.method == "raps" else 0)
    limits = [highest if limit is None else limit for limit in sets.thresholds]
    for label, score in zip(labels.tolist(), scores[np.arange(len(labels)), labels], strict=True):
        group = label if len(limits) > 1 else 0
        limits[group] += rate * ((score > limits[group]) - (1 - sets.coverage))
    return msgspec.structs.replace(
        sets, thresholds=tuple(map(float, limits)), adapted=sets.adapted + len(labels)
    )
