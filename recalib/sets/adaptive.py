"""Adaptive conformal inference: thresholds of prediction sets that follow labelled rows."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.card import PredictionSets
from recalib.errors import InputError
from recalib.ops import NumpyOps
from recalib.sets.conformal import set_scores


def adapt_sets(
    p_nk: NDArray[np.float64], labels: NDArray[np.intp], sets: PredictionSets, rate: float
) -> PredictionSets:
    """Return thresholds q after labelled rows, in their order: q + rate (missed − (1 − coverage)).

    A row whose set missed its label makes sets larger, others make them a little smaller. Over T
    rows, whatever their order and however they drift, the share of rows whose sets, at the
    thresholds of that time, hold the label is within (B + rate) / (rate T) of the coverage, for
    scores between 0 and B: 1, and of `raps` the penalties too.

    Source: Gibbs and Candès 2021, in the form of Angelopoulos, Candès and Tibshirani 2023, which
    moves the threshold instead of its level.

    Parameters
    ----------
    p_nk: (N, K), calibrated probabilities of the rows.
    labels: (N,).
    rate: above 0, in the unit of scores. Larger ones follow a drift sooner, and vary more.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise InputError("rate", found=f"{rate:g}", accepted="a number above 0")
    classes = p_nk.shape[1]
    scores = set_scores(NumpyOps(), p_nk, classes, sets)
    # Of a threshold without a limit, the largest score there is.
    highest = 1.0 + (sets.penalty * max(classes - sets.k_reg, 0) if sets.method == "raps" else 0)
    limits = [highest if limit is None else limit for limit in sets.thresholds]
    for label, score in zip(labels.tolist(), scores[np.arange(len(labels)), labels], strict=True):
        group = label if len(limits) > 1 else 0
        limits[group] += rate * ((score > limits[group]) - (1 - sets.coverage))
    return msgspec.structs.replace(
        sets, thresholds=tuple(map(float, limits)), adapted=sets.adapted + len(labels)
    )
