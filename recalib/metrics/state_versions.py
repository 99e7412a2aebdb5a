"""The sums of a `StreamingEvaluation` that an earlier version of Recalib has written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.stats.sums import Moments

Arrays = dict[str, NDArray[Any]]

#: The earlier version that is read.
EARLIER = 3


def upgrade_sums(arrays: Arrays) -> Arrays:
    """Return the arrays of version 3, named `kind.sums`, as those of the present version."""
    fractional = arrays.get("bins.fractional")  # of all rows, as in every state
    kinds: dict[str, Arrays] = {}
    for name, array in arrays.items():
        kind, _, sums = name.partition(".")
        kinds.setdefault(kind, {})[sums] = array
    return {
        f"{kind}.{name}" if name else kind: array
        for kind, sums in kinds.items()
        for name, array in _upgrade_state(kind, sums, fractional).items()
    }


def _upgrade_state(kind: str, sums: Arrays, fractional: Any) -> Arrays:
    if "squares" in sums:  # a mean of rows without weights
        count, total = sums["count"], sums["sum"]
        return {"totals": np.array([count, count, count, total, total, sums["squares"]])}
    if kind == "class_losses":
        weight = sums["count"] if "count" in sums else sums["weight"]
        return {"weight": weight.astype(np.float64), "loss": sums["loss"]}
    if "totals" in sums and sums["totals"].ndim > 1:
        return {**_moments(sums["totals"]), "fractional": fractional}
    names = {"occurred": "correct", "confidence_occurred": "confidence_correct"}
    return {names.get(name, name): array for name, array in sums.items() if name != "rows"}


def _moments(totals: NDArray[np.float64]) -> Arrays:
    """Return the sums of bins from those of wrong and right rows, (7, 2, ...)."""
    wrong, right = totals.swapaxes(0, 1)
    n, w, wp, wpp, v, vp, vpp = wrong + right
    moments = Moments(w, wp, wpp, right[1], right[2])
    squared = Moments(v, vp, vpp, right[4], right[5])
    return {
        "count": n.astype(np.int64),
        **moments._asdict(),
        **{f"squared_{name}": array for name, array in squared._asdict().items()},
    }
