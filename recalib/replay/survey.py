"""Summary of a log: its rows, times, segments and delays."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError

#: A model has up to 100 segments, and rows without a segment have the name "".
_MAX_SEGMENTS = 101
#: Delays are counted in cells that grow by a factor, from one millisecond on.
_FACTOR, _MIN_DELAY, _CELLS = 1.01, 1e-3, 3_000
DELAY_CELLS = _CELLS + 2


@dataclass(frozen=True, eq=False)
class Survey:
    """Summary of one pass over a log."""

    rows: int
    labelled: int
    #: First and last prediction time, and the last time of all, in seconds.
    start: float
    last: float
    end: float
    segments: list[str]
    #: Counts (3002,) of label delays by cell; the first cell is delay 0.
    delays: NDArray[np.int64]
    #: First and last prediction time of each row group.
    groups: list[tuple[float, float]]

    @classmethod
    def of(cls, parts: Sequence[Survey]) -> Survey:
        """Return the survey of all rows of the parts of a log, in their order.

        Raises
        ------
        InputError: together they have too many segments.
        """
        segments = {name for part in parts for name in part.segments}
        check_segments(segments)
        return cls(
            sum(part.rows for part in parts),
            sum(part.labelled for part in parts),
            min(part.start for part in parts),
            max(part.last for part in parts),
            max(part.end for part in parts),
            sorted(segments),
            np.sum([part.delays for part in parts], axis=0),
            [group for part in parts for group in part.groups],
        )

    def delay_quantile(self, share: float) -> float:
        """Return the quantile of the label delay in seconds, to 1%."""
        total = int(self.delays.sum())
        if not total:
            return 0.0
        cell = int(np.searchsorted(np.cumsum(self.delays), share * total))
        return 0.0 if cell == 0 else _MIN_DELAY * _FACTOR ** (cell - 1)


def delay_cells(delays: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the cell of each delay in seconds."""
    with np.errstate(divide="ignore"):
        powers = np.log(delays / _MIN_DELAY) / math.log(_FACTOR)
    cells = 1 + np.clip(np.ceil(powers), 0, _CELLS)
    return np.where(delays > 0, cells, 0).astype(np.intp)


def check_segments(names: Collection[str]) -> None:
    """Raise `InputError` if these are more names of segments than a model has."""
    if len(names) > _MAX_SEGMENTS:
        found = f"more than {_MAX_SEGMENTS} different"
        raise InputError("segment", found=found, accepted=f"at most {_MAX_SEGMENTS}")
