"""The adaptation of a version: its states, and what labels say of them.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.core.decoding import convert
from recalib.shift.fixed_share import FixedShare
from recalib.shift.label_shift import (
    RENEWAL,
    Adaptation,
    adapt,
    first_adaptation,
    gains,
    next_adaptation,
    window_rows,
)

#: States that are kept with their weights: the last ones, which late labels may refer to.
_MAX_STATES = 20
#: A weight of adapted answers is applied when its log-odds have changed by this; in shares near 0
#: and 1 there are few further states.
_LEAST_STEP, _LEAST_SHARE = 0.25, 1e-6
_NONE: Mapping[int, ShadowState] = {}


class ShadowState(msgspec.Struct, frozen=True):
    """A state, for predictions from `since` on, in seconds."""

    number: int
    since: float
    weights: tuple[float, ...]
    priors: tuple[float, ...]
    #: Rows of the window, and the gain per row without labels (`Adaptation`).
    rows: int
    gain: float
    #: The weight of the adapted answer in answers, in [0, 1]; 0 in shadow.
    applied: float = 0.0

    def answer(self, p_nk: Floats) -> Floats:
        """Return the answers of this state, (N, K), to answers before any adaptation."""
        if not self.applied:
            return p_nk
        return adapt(p_nk, np.array(self.weights, p_nk.dtype), self.applied)


class Shadow(msgspec.Struct, frozen=True):
    """The adaptation of a version, as JSON in the registry."""

    #: π⁰, (K,): of the calibration set, or of the first window.
    before: tuple[float, ...]
    #: Time of the last row of the last window, and the time before which labels are read.
    window_end: float
    through: float
    states: tuple[ShadowState, ...] = ()
    share: FixedShare = FixedShare()
    #: By how many nats the answers that were given were better than without adaptation, on labels.
    served: float = 0.0

    def renew(self, p_nk: Floats, window_end: float, now: float) -> Shadow:
        """Return the adaptation after a window of the version's answers, (N, K)."""
        last = self.states[-1] if self.states else None
        before = first_adaptation(len(self.before))
        if last is not None:
            before = Adaptation(last.number, last.weights, last.priors, last.rows, last.gain)
        state, states = next_adaptation(before, p_nk, np.array(self.before)), self.states
        if state is not before:
            of_state = state.number, now, state.weights, state.priors, state.rows, state.gain
            applied = 0.0 if last is None else last.applied
            states = (*states, ShadowState(*of_state, applied))[-_MAX_STATES:]
        return msgspec.structs.replace(self, states=states, window_end=window_end)

    def apply(self, now: float, applied: float) -> Shadow:
        """Return the adaptation with a state of this weight in answers, if it has changed."""
        if not self.states:
            return self
        last = self.states[-1]
        if abs(_log_odds(applied) - _log_odds(last.applied)) < _LEAST_STEP:
            return self
        changed = {"number": last.number + 1, "since": now, "applied": applied}
        states = (*self.states, msgspec.structs.replace(last, **changed))[-_MAX_STATES:]
        return msgspec.structs.replace(self, states=states)

    def confirm(
        self,
        times: NDArray[np.float64],
        p_nk: Floats,
        labels: NDArray[np.integer],
        through: float,
        numbers: NDArray[np.integer] | None = None,
        states: Mapping[int, ShadowState] = _NONE,
    ) -> Shadow:
        """Return the adaptation after labelled predictions before `through`, by time.

        A label scores the state that adapted its answer; of an answer without one, the state that
        was there when it was made.

        Parameters
        ----------
        numbers: of the states that adapted the answers, (N,); 0 for none.
        states: the states with these numbers that are known.
        """
        # Before the first state nothing is to be compared.
        at = np.searchsorted([state.since for state in self.states], times, side="right") - 1
        differences, served = [], self.served
        for row, position in enumerate(at):
            state = None if numbers is None else states.get(int(numbers[row]))
            given = state is not None
            if state is None:
                if position < 0:
                    continue
                state = self.states[position]
            gain = float(gains(p_nk[[row]], labels[[row]], np.array(state.weights))[0])
            differences.append(gain)
            if given:  # ln((1 − a) p + a q) − ln p
                served += math.log1p(state.applied * math.expm1(gain))
        share = self.share.add(differences)
        return msgspec.structs.replace(self, share=share, through=through, served=served)

    def is_due(self, new_rows: int) -> bool:
        """Return whether there are enough rows after the last window for another."""
        return new_rows >= RENEWAL * window_rows(len(self.before))

    def report(self) -> dict[str, Any]:
        """Return the last state, the weight and its evidence, as JSON."""
        last = self.states[-1] if self.states else None
        return {
            "number": 0 if last is None else last.number,
            "since": None if last is None else last.since,
            "before": list(self.before),
            "priors": list(self.before if last is None else last.priors),
            "gain": 0.0 if last is None else last.gain,
            "applied": 0.0 if last is None else last.applied,
            "served": self.served,
            **msgspec.to_builtins(self.share),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return msgspec.to_builtins(self)

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Shadow:
        """Return what `to_dict` gave."""
        return convert(stored, cls)


def begin_shadow(
    p_nk: Floats, window_end: float, shares: NDArray[np.float64] | None = None
) -> Shadow:
    """Return the adaptation before the first state.

    Parameters
    ----------
    p_nk: the first window of the version's answers, (N, K).
    shares: π⁰, (K,), of the calibration set; None if unknown: the mean of the window stands for it.
    """
    before = np.asarray(p_nk, np.float64).mean(axis=0) if shares is None else shares
    return Shadow(tuple((before / before.sum()).tolist()), window_end, window_end)


def answers_given(
    p_nk: Floats, numbers: NDArray[np.integer], states: Mapping[int, ShadowState]
) -> Floats:
    """Return the answers that were given, (N, K).

    Parameters
    ----------
    p_nk: the answers before any adaptation, (N, K).
    numbers: of the states that adapted them, (N,); 0 for none.
    states: the states with these numbers; a row of another number is not adapted.
    """
    answers = np.array(p_nk)
    for number, state in states.items():
        rows = numbers == number
        answers[rows] = state.answer(p_nk[rows])
    return answers


def _log_odds(share: float) -> float:
    share = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)
    return math.log(share / (1 - share))
