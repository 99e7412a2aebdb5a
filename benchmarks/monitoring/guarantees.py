"""How often detectors alarm although nothing is wrong, and how soon where something is."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.stats

from benchmarks.monitoring.detectors import DETECTORS, OURS
from benchmarks.monitoring.streams import BENT, DRIFTS, NULLS, ONSET, stream

__all__ = ["Row", "Verdict", "measure", "verdict"]

_ALPHA = 0.05
#: How improbable so many false alarms must be at α before a detector counts as not holding it.
_UNLUCKY = 1e-3


@dataclass(frozen=True)
class Row:
    """What a detector did on all streams of one kind."""

    detector: str
    kind: str
    streams: int
    #: Share of streams with an alarm: all of them where nothing is wrong, else those before it is.
    false_alarms: float
    #: Labels from the onset to the alarm, median over streams without a false alarm, those that
    #: are never found last; None where nothing is wrong, or half are never found.
    delay: float | None = None
    #: Share of those streams in which the drift is found.
    power: float | None = None

    @property
    def holds(self) -> bool:
        """Whether so many false alarms may come of a detector that keeps to α."""
        alarms = round(self.false_alarms * self.streams)
        return bool(scipy.stats.binom.sf(alarms - 1, self.streams, _ALPHA) >= _UNLUCKY)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "holds": self.holds}


def _alarm(task: tuple[str, str, int]) -> int | None:
    detector, kind, seed = task
    return DETECTORS[detector](*stream(kind, seed))


def measure(
    detectors: Sequence[str], streams: int, processes: int, kinds: Iterable[str] = ()
) -> list[Row]:
    """Return a row for each detector and kind of stream."""
    kinds = list(kinds) or [*NULLS, *DRIFTS, *BENT]
    rows = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for detector in detectors:
            for kind in kinds:
                tasks = [(detector, kind, seed) for seed in range(streams)]
                alarms = pool.map(partial(_alarm), tasks, chunksize=max(1, streams // 20))
                rows.append(_row(detector, kind, alarms))
    return rows


def _row(detector: str, kind: str, alarms: list[int | None]) -> Row:
    at = np.array([np.inf if one is None else one for one in alarms])
    if kind not in DRIFTS:
        return Row(detector, kind, len(at), float(np.mean(np.isfinite(at))))
    early = at <= ONSET
    delays = at[~early] - ONSET
    median = float(np.median(delays)) if len(delays) else np.inf
    return Row(
        detector,
        kind,
        len(at),
        float(np.mean(early)),
        median if np.isfinite(median) else None,
        float(np.mean(np.isfinite(delays))) if len(delays) else None,
    )


@dataclass(frozen=True)
class Verdict:
    """Whether the goal is met: α held, and no slower than whoever holds it as well."""

    ours_holds: bool
    #: Detectors that hold α on every kind of stream, and on those without any error alone.
    hold_everywhere: list[str]
    hold_calibrated: list[str]
    #: For each drift, the detector of those with the smallest delay, ours apart.
    rivals: Mapping[str, str | None]
    faster_or_equal: int
    faster: int

    @property
    def met(self) -> bool:
        return self.ours_holds and self.faster_or_equal == len(DRIFTS) and self.faster >= 2


def verdict(rows: Sequence[Row], *, everywhere: bool = True) -> Verdict:
    """Compare with rivals that hold α `everywhere`, or only where a model makes no error at all."""
    by = {(one.detector, one.kind): one for one in rows}
    detectors = list(dict.fromkeys(one.detector for one in rows))
    exact = [kind for kind in NULLS if not kind.startswith("tolerated")]
    holds = {
        scope: [d for d in detectors if all(by[d, kind].holds for kind in kinds)]
        for scope, kinds in (("all", list(NULLS)), ("exact", exact))
    }
    against = [d for d in holds["all" if everywhere else "exact"] if d != OURS]
    rivals: dict[str, str | None] = {}
    equal = faster = 0
    for kind in DRIFTS:
        own = _delay(by[OURS, kind])
        best = min(against, key=lambda d, kind=kind: _delay(by[d, kind]), default=None)
        rivals[kind] = best
        theirs = np.inf if best is None else _delay(by[best, kind])
        equal += own <= theirs
        faster += own < theirs
    return Verdict(OURS in holds["all"], holds["all"], holds["exact"], rivals, equal, faster)


def _delay(row: Row) -> float:
    return np.inf if row.delay is None else row.delay
