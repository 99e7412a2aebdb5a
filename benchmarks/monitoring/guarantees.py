"""False alarm rates and detection delays of the detectors."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.stats

from benchmarks.monitoring.detectors import DETECTORS, EXACT, OURS
from benchmarks.monitoring.streams import BENT, DRIFTS, NULLS, ONSET, stream

_ALPHA = 0.05
#: A detector does not hold α if so many false alarms are less probable than this at a rate of α.
_UNLUCKY = 1e-3


@dataclass(frozen=True)
class Row:
    """The results of a detector on all streams of one kind."""

    detector: str
    kind: str
    streams: int
    #: Share of streams with a false alarm: with drift, an alarm before the onset.
    false_alarms: float
    #: Labels from the onset to the alarm: the median over streams without a false alarm, where a
    #: missing alarm counts as infinite. None without drift, or if half have no alarm.
    delay: float | None = None
    #: Share of those streams with an alarm.
    power: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the number of false alarms is compatible with a rate of α."""
        alarms = round(self.false_alarms * self.streams)
        return bool(scipy.stats.binom.sf(alarms - 1, self.streams, _ALPHA) >= _UNLUCKY)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON."""
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
            print(f"{detector} ...", file=sys.stderr, flush=True)
            for kind in kinds:
                tasks = [(detector, kind, seed) for seed in range(streams)]
                alarms = pool.map(_alarm, tasks, chunksize=max(1, streams // 20))
                rows.append(_row(detector, kind, alarms))
    return rows


def _row(detector: str, kind: str, alarms: list[int | None]) -> Row:
    at = np.array([np.inf if alarm is None else alarm for alarm in alarms])
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
    """Whether the goal is met: rate at most α, and no slower than the others with that rate."""

    detector: str
    #: Detectors that hold α on every relevant kind of stream.
    holding: list[str]
    #: The quickest of them for each drift, without ours; None if no other detector holds α.
    rivals: Mapping[str, str | None]
    no_slower: int
    quicker: int

    @property
    def met(self) -> bool:
        holds = self.detector in self.holding
        return holds and self.no_slower == len(DRIFTS) and self.quicker >= 2

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {**asdict(self), "met": self.met}


def verdict(rows: Sequence[Row], *, everywhere: bool = True) -> Verdict:
    """Compare with rivals that hold α.

    With `everywhere`, α must hold on every kind of stream without drift; otherwise only on those
    with exact confidences, which the test without tolerance assumes.
    """
    by = {(row.detector, row.kind): row for row in rows}
    kinds = [kind for kind in NULLS if everywhere or not kind.startswith("tolerated")]
    detectors = dict.fromkeys(row.detector for row in rows)
    holding = [name for name in detectors if all(by[name, kind].holds for kind in kinds)]
    subject = OURS if everywhere else EXACT
    against = [name for name in holding if name not in (OURS, EXACT)]
    rivals: dict[str, str | None] = {}
    no_slower = quicker = 0
    for kind in DRIFTS:
        delays = {name: _delay(by[name, kind]) for name in against}
        best = min(delays, key=delays.__getitem__, default=None)
        rivals[kind] = best
        ours, theirs = _delay(by[subject, kind]), np.inf if best is None else delays[best]
        no_slower += bool(ours <= theirs)
        quicker += bool(ours < theirs)
    return Verdict(subject, holding, rivals, no_slower, quicker)


def _delay(row: Row) -> float:
    return np.inf if row.delay is None else row.delay
