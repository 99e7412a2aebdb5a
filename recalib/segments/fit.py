"""Fit the offsets of segments, and choose by held-out folds how far they may go.

Legend: N rows, K classes, G segments, C choices.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator import Calibrator
from recalib.calibrator.segments import OFFSETS, log_adjusted, log_of, membership
from recalib.core.arrays import SMALLEST_PROBABILITY, Integers, Numbers, WeightKind, check_weights
from recalib.core.card import Segment, SegmentSummary
from recalib.core.options import check_choice
from recalib.core.segment_columns import segment_masks
from recalib.errors import InputError
from recalib.fitting.cross_validation import mean_and_standard_error, random_folds

#: Strengths of the penalty: deviations of offsets of 0.04, 0.13, 0.35 and 1.
STRENGTHS = (512.0, 64.0, 8.0, 1.0)
#: The tolerance of fits of the choice.
_ROUGH = 1e-6

Predictions = Literal["may_change", "keep"]


def fit_segments(
    calibrator: Calibrator,
    values: Any,
    labels: ArrayLike,
    segments: Any,
    *,
    input: Literal["logits", "probabilities"] | None = None,
    sample_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    predictions: Predictions = "may_change",
) -> Calibrator:
    """Return a calibrator with offsets by segment, near the common map where rows are few.

    A row has the probabilities softmax(eᵃ·log p + b), where p are those of `calibrator`, and a and
    b (K,) the sums of the offsets of its segments. The offsets minimise

        −Σ w log q_y + s/2 · Σ (a² + Σ_k b_k²),

    with one strength s for all segments. Whether b is among the offsets, and s, are those of the
    least NLL on held-out folds. Offsets must gain more than a standard error over the best offsets
    of one segment of all rows, or over none: a bias that all segments share is no gain of segments,
    but an error of the map of all rows.
    Without a penalty the residuals of each segment have a mean of 0 for each class, and no
    covariance with log p: multicalibration of degree 2, for overlapping segments too.

    Parameters
    ----------
    calibrator: the common one, of rows with one label each, without segments, and without
        thresholds of sets or rejection, which are of its own probabilities.
    values, input: as in `Calibrator.predict`, (N, K): rows of its fit, or others.
    labels: (N,), as in `Calibrator.evaluate`.
    segments: (N,), texts, integers or booleans; an empty text or a null is no segment. Or several
        such columns, as a dictionary or a data frame: their segments overlap.
    sample_weight, weight_kind: as in `recalib.fit`.
    predictions: `keep` for factors eᵃ alone, which keep the predicted class.

    Raises
    ------
    InputError: invalid input, such a calibrator, or fewer than ten rows.

    Source: Gopalan, Kim, Singhal and Zhao, Low-degree multicalibration, COLT 2022, definition 2.7.

    Examples
    --------
    >>> country = np.where(labels == 0, "DE", "FR")
    >>> by_country = recalib.fit_segments(calibrator, logits, labels, country)
    >>> by_country.card.segments.form
    'vector'
    >>> by_country.predict(new_logits, np.repeat(["DE", "FR"], 200)).shape
    (400, 3)
    """
    card = calibrator.card
    if card.sets is not None or card.rejection is not None:
        found = "one with thresholds of sets or of rejection"
        raise InputError("calibrator", found=found, accepted="one without: they are of its map")
    p, y = calibrator.labelled(values, labels, input)
    w = check_weights(sample_weight, rows=len(p), field="sample_weight", kind=weight_kind)
    masks = segment_masks(segments, len(p), w)
    if not masks or len(p) < 10:
        found = f"{len(masks)} segments of {len(p)} rows"
        raise InputError("segments", found=found, accepted="at least one, of at least ten rows")
    for column in dict.fromkeys(column for column, _ in masks):
        parts = [{*y[mask].tolist()} for (name, _), mask in masks.items() if name == column]
        if len(parts) == len(set().union(*parts)) > 1 == max(map(len, parts)):
            found = f"{column}, which has one value for each label"
            raise InputError("segments", found=found, accepted="what is known before the label")
    check_choice("predictions", predictions, Predictions)
    rows, everywhere = (
        SegmentRows(p, y, membership(parts), w)
        for parts in ([*masks.values()], [np.ones(len(p), np.bool_)])
    )
    forms = ("temperature", "vector")[: 1 if predictions == "keep" else 2]
    choices = [(form, strength) for form in forms for strength in STRENGTHS]
    offsets = np.zeros((len(masks), 1 + p.shape[1]))
    log_q = _held_out(rows, choices)
    shared = np.vstack([_held_out(everywhere, choices), rows.log_q(offsets)])
    best, reference = (int(np.argmax(np.average(q, 1, w))) for q in (log_q, shared))
    saved = log_q[best] - shared[reference]
    (form, strength), (gain, error) = choices[best], mean_and_standard_error(saved, w)
    offsets = rows.fit(form, strength) if gain > error else offsets
    by_segment = []
    for name, mask in masks.items():
        part, weights = saved[mask], None if w is None else w[mask]
        mean = mean_and_standard_error(part, weights) if len(part) > 1 else (float(part[0]), None)
        by_segment.append(Segment(*name, len(part), *mean))
    columns = tuple(dict.fromkeys(column for column, _ in masks))
    form = form if gain > error else "none"
    summary = SegmentSummary(columns, tuple(by_segment), form, strength, len(p), gain, error)
    parameters = {**calibrator.parameters, OFFSETS: offsets}
    return Calibrator(parameters, msgspec.structs.replace(card, segments=summary))


class SegmentRows:
    """Labelled rows of segments.

    Parameters
    ----------
    probabilities: (N, K), of the common map.
    labels: (N,).
    members: (N, G), of `membership`.
    weights: (N,); None if all are 1.
    """

    def __init__(
        self, probabilities: Numbers, labels: Integers, members: Any, weights: Numbers | None = None
    ) -> None:
        self.p, self.labels, self.members, self.weights = probabilities, labels, members, weights
        self.at = np.arange(len(labels)), labels
        self.log_p = log_of(probabilities)
        self.log_p[self.at] = np.maximum(self.log_p[self.at], np.log(SMALLEST_PROBABILITY))

    def take(self, rows: NDArray[np.intp]) -> SegmentRows:
        """Return some of the rows."""
        w = None if self.weights is None else self.weights[rows]
        return SegmentRows(self.p[rows], self.labels[rows], self.members[rows], w)

    def log_q(self, offsets: Numbers) -> Numbers:
        """Return log q_y (N,)."""
        return log_adjusted(self.log_p, self.members @ offsets)[self.at]

    def fit(
        self, form: str, strength: float, start: Numbers | None = None, tolerance: float = 1e-15
    ) -> Numbers:
        """Return the offsets (G, 1 + K) of the least −Σ w log q_y + strength/2 · Σ (a² + Σ_k b_k²).

        Parameters
        ----------
        form: `vector`, or `temperature` for b = 0.
        start: offsets to start from.
        tolerance: a relative change of the objective below which the fit ends.
        """
        shape = self.members.shape[1], 1 + self.p.shape[1]
        free = np.arange(shape[1]) < (1 if form == "temperature" else shape[1])
        finite = np.where(np.isneginf(self.log_p), 0.0, self.log_p)
        w = np.ones(len(self.p)) if self.weights is None else self.weights
        transposed = self.members.T.tocsr()

        def objective(flat: Numbers) -> tuple[float, Numbers]:
            offsets = flat.reshape(shape)
            log_q = log_adjusted(self.log_p, self.members @ offsets)
            residuals = np.exp(log_q)
            residuals[self.at] -= 1
            residuals *= w[:, None]
            slopes = np.exp(self.members @ offsets[:, 0]) * (residuals * finite).sum(axis=1)
            gradient = transposed @ np.column_stack([slopes, residuals]) * free
            value = strength / 2 * float(flat @ flat) - float(w @ log_q[self.at])
            return value, gradient.ravel() + strength * flat

        first = np.zeros(shape) if start is None else start * free
        options = {"maxiter": 500, "ftol": tolerance, "gtol": 0.0, "maxcor": 20}
        result = scipy.optimize.minimize(
            objective, first.ravel(), jac=True, method="L-BFGS-B", options=options
        )
        return np.asarray(result.x.reshape(shape))


def _held_out(rows: SegmentRows, choices: list[tuple[str, float]]) -> Numbers:
    """Return log q_y of each row (C, N) under a fit to the other folds, for each choice."""
    folds = random_folds(len(rows.labels), fitted_rows=0)
    result = np.empty((len(choices), len(folds)))
    for fold in range(int(folds.max()) + 1):
        rest, out = (rows.take(np.flatnonzero(at)) for at in (folds != fold, folds == fold))
        start = None
        for number, (form, strength) in enumerate(choices):
            start = rest.fit(form, strength, start, _ROUGH)
            result[number, folds == fold] = out.log_q(start)
    return result
