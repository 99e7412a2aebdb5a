"""How often each class occurs now, were the shares of classes all that has changed in a log."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.drift import estimate_priors
from recalib.replay.columns import Rows
from recalib.replay.log import Log, Survey

__all__ = ["ClassShares", "Stretch", "class_shares"]

Values = NDArray[np.float64]

#: Probabilities that are held at once, 32 MB of them; of more rows, each n-th is taken.
_NUMBERS = 1 << 22


@dataclass(frozen=True)
class ClassShares:
    """Shares of classes at a log's beginning and in its last window, and what labels say of them.

    An estimate by `estimate_priors`, which is right where only the shares have changed. Labels
    tell: `brier` is the mean of (confidence − correct)² on those of the window, and
    `brier_rescaled` the same with confidences rescaled to the shares of now. Where the second is
    not clearly lower, it is another kind of drift, and to rescale would do harm.
    """

    #: Prediction times of the window, in seconds, and how many of its rows were read.
    start: float
    end: float
    rows: int
    #: (K,) each, in all one.
    before: list[float]
    now: list[float]
    #: Half of Σ|now − before|: the share of predictions that would have to change class.
    moved: float
    #: What it would be by chance, by the same estimate between first rows alone: the more, the more
    #: classes and the fewer rows there are.
    moved_by_chance: float
    #: Labels that came in time.
    labels: int
    brier: float | None
    brier_rescaled: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


class Stretch(NamedTuple):
    """Predictions from `start` until before `end`, in seconds, and about how many they are."""

    start: float
    end: float
    rows: int


def class_shares(
    log: Log, survey: Survey, reference: Stretch, window: Stretch, horizon: float
) -> ClassShares | None:
    """Return shares of classes in the first predictions and in the last window.

    None where there is nothing to compare: no probabilities, or a window that begins before the
    reference ends.

    Parameters
    ----------
    horizon: seconds after which labels are too late.
    """
    if not log.has_probabilities or window.start < reference.end:
        return None
    first, _ = _some(log, survey, reference)
    last, rows = _some(log, survey, window)
    if not len(first) or not len(last):
        return None
    # A calibrated classifier's mean probabilities are the shares of its classes.
    before = first.mean(axis=0)
    before /= before.sum()
    now = estimate_priors(last, before)
    timely = rows.delay <= horizon
    rescaled = _rescaled(last[timely], before, now)
    correct = rows.correct[timely]
    return ClassShares(
        start=window.start,
        end=window.end,
        rows=len(last),
        before=before.tolist(),
        now=now.tolist(),
        moved=_moved(before, now),
        moved_by_chance=_by_chance(first, len(last)),
        labels=len(correct),
        brier=_brier(rows.confidence[timely], correct),
        brier_rescaled=_brier(rescaled, correct),
    )


def _moved(before: Values, now: Values) -> float:
    return float(np.abs(now - before).sum() / 2)


def _by_chance(first: Values, rows: int) -> float:
    """Return what is found to have moved between rows that are all like the first.

    Between two halves of those, since the estimate on the very rows that its priors are the mean of
    is those priors; and made smaller as 1/√rows is, on both sides.
    """
    one, other = first[::2], first[1::2]
    if not len(other):
        return 0.0
    before = one.mean(axis=0)
    before /= before.sum()
    found = _moved(before, estimate_priors(other, before))
    spread = 1 / len(one) + 1 / len(other)
    return found * math.sqrt((1 / len(first) + 1 / rows) / spread)


def _some(log: Log, survey: Survey, of: Stretch) -> tuple[Values, Rows]:
    every = max(1, math.ceil(of.rows * (log.classes or 1) / _NUMBERS))
    probabilities, rows = log.probabilities(survey, of.start, of.end, every)
    return probabilities.astype(np.float64), rows


def _rescaled(probabilities: Values, before: Values, now: Values) -> Values:
    """Return what the confidence of the class that was answered would be, (N,)."""
    ratio = np.divide(now, before, out=np.zeros_like(now), where=before > 0)
    weighted = probabilities * ratio
    totals = weighted.sum(axis=1)
    own = weighted[np.arange(len(weighted)), probabilities.argmax(axis=1)]
    # A row all of whose classes have died out is left as it is.
    rescaled: Values = np.divide(own, totals, out=probabilities.max(axis=1), where=totals > 0)
    return rescaled


def _brier(confidences: Values, correct: Values) -> float | None:
    return float(np.mean((confidences - correct) ** 2)) if len(correct) else None
