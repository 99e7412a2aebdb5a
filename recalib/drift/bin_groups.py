"""Groups of neighbouring bins with enough predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def group_bins(counts: NDArray[Any], minimum: float = 2) -> NDArray[np.intp]:
    """Return the first bin of each group of neighbours that together hold at least `minimum`.

    Groups are made from the left; a remainder at the right end joins the last group.
    """
    starts, total = [0], 0
    for index, count in enumerate(counts.tolist()):
        if total >= minimum:
            starts.append(index)
            total = 0
        total += count
    if total < minimum and len(starts) > 1:
        starts.pop()
    return np.array(starts)
