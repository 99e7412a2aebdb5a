"""What a calibrator promises, and whether labelled rows keep it.

Legend: N rows, K classes, P promises.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.core.card import Card, PredictionSets, Rejection
from recalib.drift import Cohort
from recalib.drift.target import ACCEPTED, SETS
from recalib.sets import coverage_options, prediction_sets
from recalib.sets.rejection import accepts

Values = NDArray[np.float64]


class Promises(msgspec.Struct, frozen=True):
    """What a card promises beside its probabilities; false without any."""

    sets: PredictionSets | None = None
    rejection: Rejection | None = None

    def __bool__(self) -> bool:
        return bool(self.by_stream())

    def by_stream(self) -> dict[str, PredictionSets | Rejection]:
        """Return the promises by the names of their streams in a monitor."""
        found = {SETS: self.sets, ACCEPTED: self.rejection}
        return {name: promise for name, promise in found.items() if promise is not None}


def promises_of(card: Card | None) -> Promises:
    """Return the promises of a card."""
    return Promises() if card is None else Promises(card.sets, card.rejection)


def monitored_promises(card: Card) -> dict[str, Any]:
    """Return the options of a monitor of the promises of a card."""
    risk = None if card.rejection is None else card.rejection.risk
    return {**coverage_options(card.sets), "accepted_risk": risk}


def kept_of(p_nk: Floats | None, labels: NDArray[Any] | None, promises: Promises) -> Values | None:
    """Return whether rows keep each promise, (N, P): 1 or 0, −1 without a label.

    A rejected row has NaN, because its promise is about accepted ones. None without promises, or
    without what they are about.
    """
    if p_nk is None or labels is None or not promises:
        return None
    streams = promises.by_stream().values()
    return np.stack([_kept(p_nk, labels, promise) for promise in streams], axis=1)


def _kept(p_nk: Floats, labels: NDArray[Any], promise: PredictionSets | Rejection) -> Values:
    if isinstance(promise, Rejection):
        right = np.where(labels < 0, -1.0, p_nk.argmax(axis=1) == labels)
        return np.where(accepts(p_nk, promise), right, np.nan)
    members = prediction_sets(p_nk, promise)[np.arange(len(labels)), np.maximum(labels, 0)]
    return np.where(labels < 0, -1.0, members)


def promised_cohorts(
    promises: Promises,
    kept: Values | None,
    traffic: int,
    *,
    times: Values,
    delays: Values | None = None,
    groups: NDArray[np.int64] | None = None,
    on_time: NDArray[np.bool_] | None = None,
) -> dict[str, Cohort]:
    """Return the cohort of each promise for `Monitor.add`.

    Parameters
    ----------
    kept: what `kept_of` returns; without it there are no cohorts.
    traffic: the number of predictions, of which the N rows are all or a random sample.
    times, delays, groups: of the rows, (N,), as in `Cohort`.
    on_time: which rows have a label that counts, (N,); by default all with a label.
    """
    cohorts = {}
    columns = () if kept is None else kept.T
    streams = promises.by_stream().items()
    for (name, promise), values in zip(streams, columns, strict=kept is not None):
        share = 1 - promise.risk if isinstance(promise, Rejection) else promise.coverage
        used = values >= 0
        if on_time is not None:
            used &= on_time
        of_promise = np.count_nonzero(~np.isnan(values)) / max(len(values), 1)
        cohorts[name] = Cohort(
            [round(traffic * of_promise)],
            np.full(np.count_nonzero(used), share),
            values[used],
            None if delays is None else delays[used],
            times[used],
            groups=None if groups is None else groups[used],
        )
    return cohorts
