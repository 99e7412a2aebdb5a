"""The adaptation of a version in shadow: its states, and what labels say of them.

Legend: N rows, K classes.
"""

from __future__ import annotations

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
    first_adaptation,
    gains,
    next_adaptation,
    window_rows,
)

#: States that are kept with their weights: the last ones, which late labels may refer to.
_MAX_STATES = 20


class ShadowState(msgspec.Struct, frozen=True):
    """A state, for predictions from `since` on, in seconds."""

    number: int
    since: float
    weights: tuple[float, ...]
    priors: tuple[float, ...]
    #: Rows of the window, and the gain per row without labels (`Adaptation`).
    rows: int
    gain: float


class Shadow(msgspec.Struct, frozen=True):
    """The adaptation of a version, as JSON in the registry."""

    #: π⁰, (K,): of the calibration set, or of the first window.
    before: tuple[float, ...]
    #: Time of the last row of the last window, and the time before which labels are read.
    window_end: float
    through: float
    states: tuple[ShadowState, ...] = ()
    share: FixedShare = FixedShare()

    def renew(self, p_nk: Floats, window_end: float, now: float) -> Shadow:
        """Return the adaptation after a window of the version's answers, (N, K)."""
        last = self.states[-1] if self.states else None
        before = first_adaptation(len(self.before))
        if last is not None:
            before = Adaptation(last.number, last.weights, last.priors, last.rows, last.gain)
        state, states = next_adaptation(before, p_nk, np.array(self.before)), self.states
        if state is not before:
            of_state = state.number, now, state.weights, state.priors, state.rows, state.gain
            states = (*states, ShadowState(*of_state))[-_MAX_STATES:]
        return msgspec.structs.replace(self, states=states, window_end=window_end)

    def confirm(
        self,
        times: NDArray[np.float64],
        p_nk: Floats,
        labels: NDArray[np.integer],
        through: float,
    ) -> Shadow:
        """Return the adaptation after labelled predictions before `through`, by time.

        A label scores the state that was there when its prediction was made.
        """
        # Before the first state nothing is to be compared.
        at = np.searchsorted([state.since for state in self.states], times, side="right") - 1
        differences = [
            gains(p_nk[[row]], labels[[row]], np.array(self.states[state].weights))[0]
            for row, state in enumerate(at)
            if state >= 0
        ]
        share = self.share.add(map(float, differences))
        return msgspec.structs.replace(self, share=share, through=through)

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
            **msgspec.to_builtins(self.share),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

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
