"""Adaptation over time: labels count once they have matured, and states are recorded.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.shift.label_shift import LabelShift

Values = NDArray[np.float64]

#: Rows that get the same state and weight.
_BATCH = 200
#: States that are listed, the last ones.
_MAX_STATES = 100


@dataclass(frozen=True)
class StateRecord:
    """A state of the adaptation, from the prediction at `time` on, in seconds."""

    number: int
    time: float
    #: π, (K,), and by how many nats per row it explains held-out answers better than `before`.
    priors: list[float]
    gain: float
    #: The weight of the adapted answer at this time, and its evidence in nats on `labels`.
    weight: float
    evidence: float
    labels: int


@dataclass(frozen=True)
class AdaptationSummary:
    """What the adaptation to label shift did to rows."""

    #: π⁰, (K,): the class shares of the calibration set.
    before: list[float]
    #: The number of the last state; 0 if there was no shift.
    number: int
    #: The last weight of the adapted answer, the evidence in nats, and the labels that gave it.
    weight: float
    evidence: float
    labels: int
    #: Mean −ln p(label) over labels in time, of the answers given and of those without adaptation;
    #: None without labels, or if a label had the probability 0.
    nll: float | None
    nll_unadapted: float | None
    #: The last 100 states.
    states: list[StateRecord]

    def sentence(self) -> str:
        """Return the last state, its evidence, and what labels say of the answers."""
        if not self.number:
            return "adaptation to label shift: no window shows a shift"
        text = (
            f"adaptation to label shift: state {self.number}, weight {self.weight:.3f}, evidence"
            f" {self.evidence:+.1f} nats on {self.labels:,} labels"
        )
        if self.nll is None or self.nll_unadapted is None:
            return text
        return f"{text}; NLL {self.nll:.4f} instead of {self.nll_unadapted:.4f}"


class AdaptedStream:
    """Adapts rows in the order of their times; labels count when they have matured.

    Parameters
    ----------
    priors: π⁰, (K,).
    horizon: seconds from a prediction until its label counts; later labels do not.
    """

    def __init__(self, priors: Values, horizon: float) -> None:
        self._shift, self._horizon = LabelShift(priors), horizon
        #: Times and gains of rows that have not matured, by time.
        self._pending: list[tuple[float, float]] = []
        self._states: list[StateRecord] = []
        self._losses, self._labels = np.zeros(2), 0

    def answer(
        self, time: Values, p_nk: Floats, labels: NDArray[np.int64], delay: Values
    ) -> Floats:
        """Return the answers to the next rows, (N, K), and learn from them.

        Parameters
        ----------
        time: of predictions in seconds, (N,), ascending.
        p_nk: the answers without adaptation, (N, K).
        labels: true classes (N,), −1 without a label.
        delay: seconds until the label is known, (N,).
        """
        timely = (labels >= 0) & (delay <= self._horizon)
        parts = [np.zeros_like(p_nk[:0])]
        for start in range(0, len(time), _BATCH):
            part = slice(start, start + _BATCH)
            parts.append(self._answer(time[part], p_nk[part], labels[part], timely[part]))
        return np.concatenate(parts)

    def _answer(
        self, time: Values, p_nk: Floats, labels: NDArray[np.int64], timely: NDArray[np.bool_]
    ) -> Floats:
        """Return the answers to the next rows; then learn from them."""
        shift, number = self._shift, self._shift.state.number
        matured = [g for at, g in self._pending if at + self._horizon <= time[0]]
        if matured:
            shift.confirm(np.array(matured))
            self._pending = self._pending[len(matured) :]
        answers = shift.answer(p_nk)
        at = np.flatnonzero(timely)
        with np.errstate(divide="ignore"):
            losses = [-np.log(p[at, labels[at]]).sum(dtype=float) for p in (answers, p_nk)]
        self._losses += losses
        self._labels += len(at)
        if number:
            gains = shift.gains(p_nk[at], labels[at])
            self._pending += zip(time[at].tolist(), gains.tolist(), strict=True)
        shift.add(p_nk)
        if shift.state.number != number:
            self._note(float(time[-1]))
        return answers

    def _note(self, time: float) -> None:
        state, share = self._shift.state, self._shift.share
        learnt = share.weight, share.evidence, share.labels
        note = StateRecord(state.number, time, list(state.priors), state.gain, *learnt)
        self._states = [*self._states, note][-_MAX_STATES:]

    def summary(self) -> AdaptationSummary:
        """Return what was done so far."""
        share, losses = self._shift.share, self._losses / max(self._labels, 1)
        nll, unadapted = (
            float(loss) if self._labels and math.isfinite(loss) else None for loss in losses
        )
        before, number = self._shift.priors.tolist(), self._shift.state.number
        learnt = share.weight, share.evidence, share.labels
        return AdaptationSummary(before, number, *learnt, nll, unadapted, self._states)
