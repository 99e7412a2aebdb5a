"""Traffic without labels: bins of confidence, segments and classes that labels do not describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.core.time_text import time_text
from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.label_rates import SilentTime
from recalib.drift.target import TARGET_NAMES, Target

#: Probability that any of the compared bins or segments is called silent by chance.
_FALSE_SILENCE = 0.01
#: With this number of labels, a bin or segment is estimated from them.
_ENOUGH_LABELS = 5
_MAX_NAMES = 3


class SilentClasses(NamedTuple):
    """Traffic of predicted classes without useful labels."""

    #: The share of each class in all traffic, by its name in a sentence.
    shares: Mapping[str, float]
    #: Σ max(p, 1 − p) of these predictions by the number of all: the most that they add to ECE.
    max_error: float


def is_silent(labelled: ArrayLike, traffic: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """Return which parts of the traffic have no useful labels, (B,).

    A part is silent if it has fewer than 5 labels, and fewer than `rate` gives by chance: the
    binomial probability of as few labels is below 1%, divided by the number of parts. With few
    labels in all, or a little traffic, no part is silent.

    Parameters
    ----------
    labelled: n, the number of labels of each part, (B,).
    traffic: N, the number of predictions of each part, (B,).
    rate: labels per prediction of all traffic.
    """
    n, total = np.asarray(labelled, np.int64), np.asarray(traffic, np.int64)
    chance = scipy.special.bdtr(np.minimum(n, total).astype(np.float64), total, min(rate, 1.0))
    return (n < _ENOUGH_LABELS) & (chance < _FALSE_SILENCE / max(n.size, 1))


def silent_bins(sums: CalibrationSums) -> NDArray[np.bool_]:
    """Return which bins are silent, (B,)."""
    total = sums.seen.sum()
    if not total:
        return np.zeros(sums.bins, bool)
    return is_silent(sums.labelled, sums.seen, sums.labelled.sum() / total)


def worst_gaps(sums: CalibrationSums) -> NDArray[np.float64]:
    """Return the largest possible |accuracy − confidence| of the traffic of each bin, (B,).

    It is max(p̄, 1 − p̄) for a bin with the mean confidence p̄. Where Σp does not include all
    predictions, the confidences of the others may be anywhere in the bin.
    """
    low, high = np.insert(sums.edges, 0, 0.0), np.append(sums.edges, 1.0)
    known = np.minimum(sums.traffic_confidence_count, sums.traffic)
    shares = known / np.maximum(sums.traffic, 1)
    means = sums.traffic_confidence / np.maximum(sums.traffic_confidence_count, 1)
    # The sum of confidences at an edge may be rounded to a mean outside the bin.
    means = np.clip(means, low, high)
    return np.maximum(shares * means + (1 - shares) * high, 1 - shares * means - (1 - shares) * low)


def describe_silence(
    sums: CalibrationSums,
    bins: NDArray[np.bool_],
    segments: Mapping[str, CalibrationSums],
    class_shares: Mapping[str, float] | None = None,
    times: Sequence[SilentTime] = (),
    silent_since: float | None = None,
    target: Target = "top_label",
) -> str | None:
    """Return the silent parts of the traffic with their shares, for a sentence; None without any.

    Parameters
    ----------
    sums: all traffic.
    bins: the silent bins, (B,), of traffic outside silent segments.
    segments: the silent segments.
    class_shares: the silent classes with their shares of traffic.
    times: the silent times.
    silent_since: the start of the last of them, if it has not ended.
    target: what the bins divide.
    """
    total = int(sums.seen.sum())
    shares = {name: int(part.traffic.sum()) / total for name, part in segments.items()}
    parts = _largest({f"segment {name!r}": share for name, share in shares.items()}, "segments")
    classes = {f"predictions of {name}": share for name, share in (class_shares or {}).items()}
    parts += _largest(classes, "classes")
    ended = {
        f"predictions from {time_text(time.start)} to {time_text(time.end)}": time.traffic / total
        for time in times
        if time.start != silent_since
    }
    parts += _largest(ended, "times")
    if bins.any():
        share = int(sums.traffic[bins].sum()) / total
        name = TARGET_NAMES[target].probability
        parts.append(f"traffic with {name} {_ranges(sums.edges, bins)} ({share:.0%})")
    texts = [f"no labels for {' and '.join(parts)}"] if parts else []
    if silent_since is not None:
        share = times[-1].traffic / total
        texts.insert(0, f"no labels since {time_text(silent_since)} ({share:.0%} of traffic)")
    return "; ".join(texts) or None


def _largest(shares: Mapping[str, float], plural: str) -> list[str]:
    """Return the largest parts of the traffic with their shares, and the number of the others."""
    names = sorted(shares, key=lambda name: (-shares[name], name))
    parts = [f"{name} ({shares[name]:.0%} of traffic)" for name in names[:_MAX_NAMES]]
    if len(names) > _MAX_NAMES:
        parts.append(f"{len(names) - _MAX_NAMES} further {plural}")
    return parts


def _ranges(edges: NDArray[np.float64], bins: NDArray[np.bool_]) -> str:
    """Return the ranges of confidence that the bins cover."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], bins, [False]])))
    # P(y = 1) of a rare class is below 0.01.
    texts, names = [], [f"{edge:.2f}" if edge >= 0.01 else f"{edge:.2g}" for edge in edges]
    for first, end in changes.reshape(-1, 2).tolist():
        if end == len(bins):
            texts.append(f"above {names[first - 1]}" if first else "of any value")
        elif first == 0:
            texts.append(f"below {names[end - 1]}")
        else:
            texts.append(f"from {names[first - 1]} to {names[end - 1]}")
    return ", ".join(texts[:_MAX_NAMES]) + (" and elsewhere" if len(texts) > _MAX_NAMES else "")
