"""Class shares at the start and the end of a log, under the assumption of label shift."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.drift import estimate_priors
from recalib.replay.columns import LogRows
from recalib.replay.log import Log
from recalib.replay.survey import Survey
from recalib.shift import adapt

Values = NDArray[np.float64]

#: Largest number of probabilities in memory, 32 MB; of more rows, every n-th is used.
_MAX_VALUES = 1 << 22


@dataclass(frozen=True)
class ClassShares:
    """Class shares at the start of a log and in its last window, checked with labels.

    `estimate_priors` gives the shares, which are valid if only the shares have changed. `brier` is
    the mean of (confidence − correct)² over the labels of the window; `brier_rescaled` is the same
    with confidences rescaled to the current shares. If it is not clearly lower, the drift is of
    another kind, and rescaling would do harm.
    """

    #: Prediction times of the window, in seconds, and the number of rows read.
    start: float
    end: float
    rows: int
    #: (K,) each; both sum to 1.
    before: list[float]
    now: list[float]
    #: Total variation distance, Σ|now − before| / 2.
    moved: float
    #: The distance that chance alone gives, estimated between first rows; it grows with the number
    #: of classes and falls with the number of rows.
    moved_by_chance: float
    #: Number of labels in time.
    labels: int
    brier: float | None
    brier_rescaled: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return asdict(self)


class Period(NamedTuple):
    """A period from `start` until before `end`, in seconds, with its number of rows."""

    start: float
    end: float
    rows: int


def class_shares(
    log: Log, survey: Survey, reference: Period, window: Period, horizon: float
) -> ClassShares | None:
    """Return the class shares in the first predictions and in the last window.

    Return None without probabilities, or if the window begins before the reference ends.

    Parameters
    ----------
    horizon: seconds after which labels are too late.
    """
    if not log.has_probabilities or window.start < reference.end:
        return None
    first, _ = _read(log, survey, reference)
    last, rows = _read(log, survey, window)
    if not len(first) or not len(last):
        return None
    before = _mean(first)
    now = estimate_priors(last, before)
    timely = rows.delay <= horizon
    rescaled = _rescale(last[timely], before, now)
    correct = rows.correct[timely]
    return ClassShares(
        start=window.start,
        end=window.end,
        rows=len(last),
        before=before.tolist(),
        now=now.tolist(),
        moved=_distance(before, now),
        moved_by_chance=_chance_distance(first, len(last)),
        labels=len(correct),
        brier=_brier(rows.confidence[timely], correct),
        brier_rescaled=_brier(rescaled, correct),
    )


def shares_of(log: Log, survey: Survey, period: Period) -> Values:
    """Return the class shares (K,) of the predictions of a period."""
    return _mean(_read(log, survey, period)[0])


def _mean(probabilities: Values) -> Values:
    """Return the mean probabilities: of a calibrated classifier, its class shares."""
    shares: Values = probabilities.mean(axis=0)
    shares /= shares.sum()
    return shares


def _distance(before: Values, now: Values) -> float:
    return float(np.abs(now - before).sum() / 2)


def _chance_distance(first: Values, rows: int) -> float:
    """Return the distance that the estimate gives for unchanged rows.

    It compares two halves of the first rows: on the rows whose mean is the prior, the estimate
    would return the prior. The distance is then scaled by 1/√rows of both sides.
    """
    half, second_half = first[::2], first[1::2]
    if not len(second_half):
        return 0.0
    before = _mean(half)
    distance = _distance(before, estimate_priors(second_half, before))
    spread = 1 / len(half) + 1 / len(second_half)
    return distance * math.sqrt((1 / len(first) + 1 / rows) / spread)


def _read(log: Log, survey: Survey, period: Period) -> tuple[Values, LogRows]:
    stride = max(1, math.ceil(period.rows * (log.classes or 1) / _MAX_VALUES))
    probabilities, rows = log.probabilities(survey, period.start, period.end, stride)
    return probabilities.astype(np.float64), rows


def _rescale(probabilities: Values, before: Values, now: Values) -> Values:
    """Return the rescaled confidence of the predicted class, (N,)."""
    ratio = np.divide(now, before, out=np.zeros_like(now), where=before > 0)
    rows = np.arange(len(probabilities)), probabilities.argmax(axis=1)
    return np.asarray(adapt(probabilities, ratio)[rows], np.float64)


def _brier(confidences: Values, correct: Values) -> float | None:
    return float(np.mean((confidences - correct) ** 2)) if len(correct) else None
