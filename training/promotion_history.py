"""Earlier comparisons with the same champion, which the promotion rule pools with a new one."""

from __future__ import annotations

import numpy as np

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.fitting.promotion import MAX_POOLED, Gain
from recalib.fitting.row_digests import Digests, decode_digests
from recalib.registry import Model, Transaction

#: The number of versions in which earlier comparisons are sought.
_MAX_VERSIONS = 20
#: The largest share of rows that two pooled comparisons have in common.
_MAX_OVERLAP = 0.05


def earlier_gains(
    tx: Transaction,
    model: Model,
    card: Card,
    digests: Digests,
    champion: int | None,
    since: float,
) -> list[Gain]:
    """Return the gains of up to four earlier refits over the champion, oldest first.

    They have the map, the objective and the options of `card`, and other rows. Versions before
    `since` do not count: after a rollback, the evidence for the version that was rolled back does
    not promote the next one.

    Parameters
    ----------
    card: of the new version.
    digests: of all its rows.
    champion: the champion's version; None if the comparison is with the uncalibrated
        probabilities.
    since: the time at which it became the champion.
    """
    gains: list[Gain] = []
    for row in tx.calibrators.newest(model, since, _MAX_VERSIONS):
        earlier = convert(row.card, Card)
        selection = earlier.selection
        if (
            selection is None
            or earlier.claimed is not None  # its rows are not those that were compared
            or selection.rows is None
            or selection.threshold is None
            or selection.reference_version != champion
            or not is_same_configuration(earlier, card)
        ):
            continue
        stored = tx.calibrators.row_digests(model, row.version)
        if stored is None:
            continue
        rows = decode_digests(stored)
        if np.isin(rows, digests).mean() > _MAX_OVERLAP:
            continue
        digests = np.concatenate([digests, rows])
        gain = selection.reference_nll - selection.nll
        gains.append(Gain(selection.rows, gain, selection.standard_error))
        if len(gains) == MAX_POOLED - 1:
            break
    return gains[::-1]


def is_same_configuration(card: Card, other: Card) -> bool:
    """Return whether both have the same map, objective and options."""
    return (card.map, card.options, card.objective, card.objective_options) == (
        other.map, other.options, other.objective, other.objective_options
    )  # fmt: skip
