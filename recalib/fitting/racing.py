"""Held-out predictions of many candidates, without the folds of those that cannot win.

Every decision depends on rows alone, so that a race repeats bit for bit, unless time is limited.

Legend: N rows, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.fitting.cross_validation import (
    Candidate,
    fold_fits,
    mean_and_standard_error,
)
from recalib.fitting.problem import Progress
from recalib.ops import NumpyOps

#: The references, which no rule leaves out.
REFERENCES = ("identity", "temperature")
#: Maps whose fit takes ten times as long as the others': they first compete on few rows.
NETWORKS = ("parameterized_temperature", "intra_order_preserving")
_FEW_ROWS = 1_000
#: With fewer rows in a fit all candidates have all folds, which cost little.
_RACED_ROWS = 1_200
#: The folds before the race.
_FIRST_FOLDS = 1
#: A network must be better by this many standard errors.
_CLEAR = 2.0

_OPS = NumpyOps()

#: Returns those of the entries' candidates that may still win, by the rows with these indices.
Survivors = Callable[["Sequence[Entry]", NDArray[np.intp]], Collection[Candidate]]


@dataclass(eq=False)
class Entry:
    """A candidate, and its predictions of the rows of the folds it has run."""

    candidate: Candidate
    #: (N, K), log-probabilities of held-out rows.
    log_p: NDArray[np.float32]
    seconds: float = 0.0
    #: Why it does not have all folds; "" if it has.
    reason: str = ""
    #: The candidate with the strength of its penalty, once it is chosen.
    fitted: Candidate | None = None


@dataclass(frozen=True, eq=False)
class Race:
    """The rows of a race: (N, K), (N,), (N,) and (N,), the folds from 0."""

    logits: Floats
    labels: Integers
    weights: Numbers | None
    folds: NDArray[np.int64]
    #: None for no limit: then time decides nothing.
    max_seconds: float | None = None
    progress: Progress | None = None

    def run(self, candidates: Sequence[Candidate], survivors: Survivors) -> list[Entry]:
        """Return an entry for each candidate, in their order.

        Parameters
        ----------
        candidates: from the cheapest.
        survivors: called with entries and the rows that all of them have predicted.
        """
        started = time.perf_counter()
        entries = [Entry(candidate, self._nothing()) for candidate in candidates]
        count = int(self.folds.max()) + 1
        first = min(_FIRST_FOLDS, count) if self._is_raced else count
        networks = [entry for entry in entries if entry.candidate.map.name in NETWORKS]
        others = [entry for entry in entries if entry not in networks]
        for entry in others:
            if not self._is_late(started, entry):
                self._add(entry, range(first))
        on_time = [entry for entry in networks if not self._is_late(started, entry)]
        for entry in self._screen(on_time, others):
            self._add(entry, range(first))
        if first < count:
            self._drop(entries, np.flatnonzero(self.folds < first), survivors)
        for entry in entries:
            if not entry.reason and not self._is_late(started, entry):
                self._add(entry, range(first, count))
        return entries

    @property
    def _is_raced(self) -> bool:
        return len(self.labels) >= _RACED_ROWS

    def _nothing(self) -> NDArray[np.float32]:
        return np.empty(self.logits.shape, np.float32)

    def _is_late(self, started: float, entry: Entry) -> bool:
        """Return whether the time is over, which the entry then gives as its reason."""
        if entry.candidate.map.name in REFERENCES:
            return False
        seconds = time.perf_counter() - started
        if self.max_seconds is not None and seconds > self.max_seconds:
            entry.reason = f"max_seconds={self.max_seconds:g} were over"
        return bool(entry.reason)

    def _add(self, entry: Entry, folds: Sequence[int]) -> None:
        """Run folds of an entry."""
        started = time.perf_counter()
        fits = fold_fits(
            self.with_strength(entry), self.logits, self.labels, self.folds, self.weights,
            only=folds, progress=self.progress,
        )  # fmt: skip
        for rows, map, parameters in fits:
            z = self.logits[rows].astype(np.float64, copy=False)
            entry.log_p[rows] = map.log_probabilities(_OPS, z, parameters)
        entry.seconds += time.perf_counter() - started

    def with_strength(self, entry: Entry) -> Candidate:
        """Return the candidate with the strength of its penalty, which it chooses once by all rows.

        A single number hardly favours the held-out ones.
        """
        if entry.fitted is None:
            entry.fitted = entry.candidate.with_strength(self.logits, self.labels, self.weights)
        return entry.fitted

    def _screen(self, networks: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
        """Return the networks that, fitted to few rows, are clearly better than a simpler map.

        It is the one with the least NLL in the first fold of those that also keep predictions.
        """
        if not networks:
            return []
        out, fitted = np.flatnonzero(self.folds == 0), np.flatnonzero(self.folds != 0)
        few = np.sort(np.random.default_rng(0).permutation(fitted)[:_FEW_ROWS])
        w = None if self.weights is None else self.weights[out]
        simple = [e for e in others if e.candidate.map.preserves_accuracy and not e.reason]
        best = min(simple, key=lambda e: np.average(self._losses(e, out), weights=w))
        race = self._subset(np.concatenate([out, few]), np.repeat([0, 1], [len(out), len(few)]))
        first = np.arange(len(out))
        rivals = [Entry(e.candidate, race._nothing()) for e in (best, *networks)]
        for rival in rivals:
            race._add(rival, [0])
        base, *losses = (race._losses(rival, first) for rival in rivals)
        for network, rival, loss in zip(networks, rivals[1:], losses, strict=True):
            network.seconds += rival.seconds
            gain, error = mean_and_standard_error(base - loss, w)
            if gain <= _CLEAR * error:
                network.reason = (
                    f"not clearly better than {best.candidate.name}, both fitted to {len(few)} rows"
                )
        return [network for network in networks if not network.reason]

    def _subset(self, rows: NDArray[np.intp], folds: NDArray[np.int64]) -> Race:
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self, logits=self.logits[rows], labels=self.labels[rows], weights=weights, folds=folds
        )

    def _losses(self, entry: Entry, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the NLL of the rows with these indices."""
        return -entry.log_p[rows, self.labels[rows]].astype(np.float64)

    def _drop(self, entries: Sequence[Entry], rows: NDArray[np.intp], survivors: Survivors) -> None:
        """Give those that cannot win a reason, by the rows that all have predicted."""
        running = [entry for entry in entries if not entry.reason]
        remaining = survivors(running, rows)
        for entry in running:
            if entry.candidate not in remaining:
                entry.reason = f"it cannot win after {len(rows)} of {len(self.labels)} rows"
