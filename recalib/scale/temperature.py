"""The best single temperature of the rows of many files, or of the rows above a threshold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.files import Input
from recalib.files.fragments import Fragment
from recalib.fitting.newton import (
    ends_and_spreads,
    fit_temperature_by_sums,
    has_masks,
    moment_sums,
)
from recalib.fitting.problem import TemperatureFit
from recalib.fitting.temperature_preprocessing import top_odds
from recalib.scale.rows import FragmentRows, RowSurvey, iter_chunks, weighted_sum

Numbers = NDArray[np.float64]

#: Numbers of a block of rows: 8 MB of float64.
_BLOCK = 1_000_000


@dataclass(frozen=True)
class Acceptance:
    """Rows whose prediction has log-odds at or above a threshold under softmax(z / temperature)."""

    temperature: float
    threshold: float

    def of(self, logits: Floats) -> NDArray[np.bool_]:
        """Return whether each row of (n, K) is accepted, (n,)."""
        step = max(1, _BLOCK // logits.shape[1])
        blocks = (logits[start : start + step] for start in range(0, len(logits), step))
        odds = [top_odds(block, self.temperature)[1] for block in blocks]
        return np.asarray(np.concatenate(odds) >= self.threshold)


def fit_temperature(
    rows: FragmentRows, survey: RowSurvey, acceptance: Acceptance | None = None
) -> TemperatureFit:
    """Return the best temperature by NLL.

    Parameters
    ----------
    survey: of the rows; of `accepted_survey` for an acceptance.
    acceptance: the rows that count; None: all.
    """

    def sums(scale: float, beta: float) -> Numbers:
        if acceptance is None:
            return rows.moments(scale, beta)
        return rows.sum(partial(_moments, rows.kind, acceptance, scale, beta))

    if survey.scale == 0:
        nll = float(sums(1.0, 0.0)[0]) / survey.weight
        return TemperatureFit(1.0, nll, is_constant=True)
    of_scale = partial(sums, survey.scale)
    return fit_temperature_by_sums(
        of_scale, survey.weight, survey.scale, survey.logits, survey.labels, survey.weights
    )


def accepted_survey(rows: FragmentRows, survey: RowSurvey, acceptance: Acceptance) -> RowSurvey:
    """Return the survey of accepted rows; its counts of labels are those of all rows.

    A sample without accepted rows is kept: it gives only the start.
    """
    parts = np.stack([*rows.map(partial(_extent, rows.kind, acceptance))])
    count, weight, spread = parts[:, :3].sum(axis=0).tolist()
    sample = acceptance.of(survey.logits)
    if not sample.any():
        sample = np.ones_like(sample)
    return replace(
        survey,
        rows=int(count),
        weight=weight,
        spread=spread,
        largest=float(parts[:, 3].max()),
        logits=survey.logits[sample],
        labels=survey.labels[sample],
        weights=None if survey.weights is None else survey.weights[sample],
    )


def _moments(
    kind: Input, acceptance: Acceptance, scale: float, beta: float, fragment: Fragment
) -> Numbers:
    """Return `moment_sums` of the accepted rows."""
    sums = np.zeros(3)
    with fragment.open(kind) as file:
        for z, y, w in iter_chunks(file, kind):
            accepted = acceptance.of(z)
            z, y, w = z[accepted], y[accepted], None if w is None else w[accepted]
            sums += moment_sums(z, y, w, scale, beta, masks=has_masks(z, scale))
    return sums


def _extent(kind: Input, acceptance: Acceptance, fragment: Fragment) -> Numbers:
    """Return N and Σw of accepted rows, Σ w (max z − mean z), and the largest |z|."""
    count, weight, spread, largest = 0, 0.0, 0.0, 0.0
    with fragment.open(kind) as file:
        for z, _, w in iter_chunks(file, kind):
            at = acceptance.of(z)
            accepted = z[at]
            if len(accepted):
                lowest, tops, spreads = ends_and_spreads(accepted)
                count += len(accepted)
                weights = None if w is None else w[at]
                weight += len(accepted) if weights is None else float(weights.sum())
                spread += weighted_sum(spreads, weights)
                largest = max(largest, abs(lowest), abs(float(tops.max())))
    return np.array([count, weight, spread, largest])
