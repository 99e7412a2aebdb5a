"""Label rates over time: which cohorts of a window have no labels, or have them at another rate.

The null hypothesis is that labels fall on the predictions of a bin regardless of time. Neighbouring
cohorts then have E = Σ N·r labels on average, for their traffic N in each bin and its label rate r.
Of n labels, at most k are theirs with a probability of at most exp(−n·KL(k/n, E/n)), the bound of
Chernoff and Hoeffding (1963, theorem 1), which holds with and without replacement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby, takewhile
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.drift.calibration_sums import CalibrationSums
from recalib.stats.sums import Moments

#: Probability that any time is called silent by chance: over 100,000 cohorts, which are eleven
#: years of hours, and all runs of the 1,000 before each.
_FALSE_SILENCE = 0.01
_THRESHOLD = float(np.log(100_000 * 1_000**2 / 2 / _FALSE_SILENCE))
#: A time with a low label rate is estimated from this number of labels, or else silent.
_ENOUGH_LABELS = 5

#: Labels are rare if their rate is at most this share of the usual one.
_RARE = 0.5

#: Start and end of a cohort in seconds, and its sums.
Entry = tuple[float, float, CalibrationSums]


class SilentTime(NamedTuple):
    """A time whose predictions have no useful labels, in seconds."""

    start: float
    end: float
    #: Those of its predictions that are in the window.
    traffic: int


class RareLabels(NamedTuple):
    """A time that has not ended, and that has far fewer labels than the others of a window."""

    #: In seconds.
    since: float
    #: Labels of a prediction now, and in the other times.
    rate: float
    usual: float
    #: The factor by which intervals are wider than with the same labels at one rate.
    widening: float


class RatedWindow(NamedTuple):
    """The latest cohorts by label rate."""

    start: float | None
    end: float | None
    #: Sums of the cohorts with useful labels, and of these by label rate.
    sums: CalibrationSums
    strata: list[CalibrationSums]
    #: Traffic of the times without useful labels.
    silent_traffic: CalibrationSums
    silent_times: list[SilentTime]
    #: The last run of cohorts, if its label rate is far below that of the others.
    rare: RareLabels | None = None

    @property
    def silent_since(self) -> float | None:
        """The start of the silent time that has not ended, in seconds."""
        last = self.silent_times[-1] if self.silent_times else None
        return last.start if last is not None and last.end == self.end else None


def rate_window(
    entries: Sequence[Entry], empty: CalibrationSums, oldest: float, pause: float = 0.0
) -> RatedWindow:
    """Return the cohorts that end after `oldest` by label rate.

    The window begins with labels: silent cohorts before the first others are no part of it.

    Parameters
    ----------
    entries: cohorts in order of time; the older ones show label rates only.
    pause: the longest time in seconds that is expected to have no labels.
    """
    recent = [k for k, (_, end, _) in enumerate(entries) if end > oldest]
    if not recent:
        return RatedWindow(None, None, empty, [], empty, [])
    strata = _strata(entries, pause)
    recent = recent[next((at for at, k in enumerate(recent) if strata[k] >= 0), 0) :]
    times = []
    for stratum, run in groupby(range(len(entries)), key=lambda k: strata[k]):
        part = list(run)
        traffic = [int(entries[k][2].traffic.sum()) for k in part if k in recent]
        if stratum < 0 and traffic:
            times.append(SilentTime(entries[part[0]][0], entries[part[-1]][1], sum(traffic)))
    by_rate = dict.fromkeys(sorted({strata[k] for k in recent}), empty)
    for k in recent:
        by_rate[strata[k]] = by_rate[strata[k]].merge(entries[k][2])
    silent = by_rate.pop(-1, empty).traffic_only()
    sums = reduce(CalibrationSums.merge, by_rate.values(), empty)
    start, end = entries[recent[0]][0], entries[recent[-1]][1]
    rare = _rare_labels([(entries[k], strata[k]) for k in recent], by_rate)
    return RatedWindow(start, end, sums, list(by_rate.values()), silent, times, rare)


def _rare_labels(
    cohorts: Sequence[tuple[Entry, int]], by_rate: Mapping[int, CalibrationSums]
) -> RareLabels | None:
    """Return the last run of one stratum if its label rate is at most half that of the others."""
    last = cohorts[-1][1]
    if last < 0 or len(by_rate) < 2:
        return None
    run = list(takewhile(lambda cohort: cohort[1] == last, reversed(cohorts)))
    counts = np.array([(part.labelled.sum(), part.traffic.sum()) for part in by_rate.values()])
    mine = counts[list(by_rate).index(last)]
    rate, usual = (float(n / max(of, n, 1)) for n, of in (mine, counts.sum(axis=0) - mine))
    if rate > _RARE * usual:
        # A few labels do not show that they are back.
        is_short = sum(part.labelled.sum() for (_, _, part), _ in run) < _ENOUGH_LABELS
        before = cohorts[: -len(run)]
        return _rare_labels(before, by_rate) if before and is_short else None
    strata = list(by_rate.values())
    sizes, expected = np.array([part.size for part in strata]), _expected_labels(strata)
    spread = (expected**2 / np.maximum(sizes, 1)).sum() * sizes.sum() / expected.sum() ** 2
    return RareLabels(run[-1][0][0], rate, usual, float(np.sqrt(max(spread, 1.0))))


def weigh_by_traffic(strata: Sequence[CalibrationSums]) -> tuple[Moments, Moments]:
    """Return the moments of labelled rows with weights, and with the squares of the weights.

    Rows of a stratum of size n have the weight E/n, so that each time counts by its traffic. The
    weights add up to the size of all; with one stratum they are 1.
    """
    sizes, expected = np.array([part.size for part in strata]), _expected_labels(strata)
    weights = expected / np.where(sizes > 0, sizes, np.inf)
    weights *= sizes.sum() / (weights @ sizes)
    first, second = (
        Moments(
            *(
                sum(w**power * sums for w, sums in zip(weights, columns, strict=True))
                for columns in zip(*(part.moments for part in strata), strict=True)
            )
        )
        for power in (1, 2)
    )
    return first, second


def _strata(entries: Sequence[Entry], pause: float) -> list[int]:
    """Return a number for the label rate of each entry, -1 without useful labels."""
    sums = [part for _, _, part in entries]
    expected = _expected_labels(sums)
    labelled = np.array([int(part.labelled.sum()) for part in sums])
    spans = np.array([(start, end) for start, end, _ in entries]).reshape(-1, 2)
    # Rows of a group get labels together.
    threshold = _THRESHOLD * labelled.sum() / max(sum(part.size for part in sums), 1.0)
    numbers, parts = np.zeros(len(sums), int), [np.arange(len(sums))]
    for number in range(len(sums)):
        part = parts.pop()
        while (
            low := _lowest_run(expected[part], labelled[part], spans[part], pause, threshold)
        ) is not None:
            parts.append(part[low])
            part = np.delete(part, low)
        is_silent = len(part) < len(sums) and labelled[part].sum() < _ENOUGH_LABELS
        numbers[part] = -1 if is_silent else number
        if not parts:
            break
    return list(map(int, numbers))


def _expected_labels(parts: Sequence[CalibrationSums]) -> Numbers:
    """Return E of each part, for the label rates of all parts."""
    labelled = sum(part.labelled for part in parts)
    seen = np.array([part.seen for part in parts])
    return seen @ (labelled / np.maximum(seen.sum(axis=0), 1))


def _lowest_run(
    expected: Numbers, labelled: NDArray[np.int64], spans: Numbers, pause: float, threshold: float
) -> slice | None:
    """Return the run of entries whose labels are fewer with the most evidence; None without one."""
    k, e = (np.insert(np.cumsum(values), 0, 0.0) for values in (labelled, expected))
    n, share = float(labelled.sum()), (e - e[:, None]) / max(float(expected.sum()), 1e-300)
    first, end = np.triu_indices(len(expected) + 1, 1)
    runs = (spans[end - 1, 1] - spans[first, 0] > pause) & (end - first < len(expected))
    first, end = first[runs], end[runs]
    count, share = k[end] - k[first], share[first, end]
    is_low = (count < n * share) & (share < 1)
    if not is_low.any():
        return None
    first, end, count, share = first[is_low], end[is_low], count[is_low], share[is_low]
    evidence = scipy.special.rel_entr(count, n * share)
    evidence += scipy.special.rel_entr(n - count, n * (1 - share))
    best = int(np.argmax(evidence))
    return slice(int(first[best]), int(end[best])) if evidence[best] >= threshold else None
