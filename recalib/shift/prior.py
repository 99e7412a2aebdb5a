"""Class shares that are known: of the rows of a training, and of those of the use.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import check_probabilities
from recalib.core.inputs import as_array
from recalib.errors import InputError
from recalib.shift.label_shift import adapt

#: How the classes of a training were rebalanced: see `recalib.fit`.
Resampled = Mapping[str, float | Sequence[float] | str]

_SUM = 1e-6


def adjust_prior(
    probabilities: ArrayLike, train_prior: ArrayLike, true_prior: ArrayLike
) -> NDArray[np.float64]:
    """Return probabilities for other class shares: q_k ∝ p_k true_k / train_k, rows sum to 1.

    If p is calibrated on rows with the shares `train_prior`, q is on rows with `true_prior`, as
    long as the rows of each class look alike in both. A probability of 0 or 1 stays.

    Parameters
    ----------
    probabilities: (N, K), or (N,) of class 1 of 2.
    train_prior: (K,), shares of the classes that sum to 1, or that of class 1 of 2; those of the
        rows for which `probabilities` are calibrated, such as resampled training rows.
    true_prior: the same for the rows of the use.

    Returns
    -------
    In the shape of `probabilities`, float64.

    Raises
    ------
    InputError: shares that are not positive or do not sum to 1, or probabilities that are none.

    Source: Saerens, Latinne and Decaestecker 2002, equation 2.4.

    Examples
    --------
    >>> adjust_prior([0.5, 0.9], train_prior=0.5, true_prior=0.01).round(3)
    array([0.01 , 0.083])
    """
    values = as_array(probabilities, field="probabilities")
    p = check_probabilities(values).astype(np.float64)
    train, true = (
        _shares(prior, name, p.shape[1])
        for name, prior in (("train_prior", train_prior), ("true_prior", true_prior))
    )
    adjusted = np.asarray(adapt(p, true / train), np.float64)
    return adjusted[:, 1] if values.ndim == 1 else adjusted


def _shares(prior: ArrayLike, name: str, classes: int) -> NDArray[np.float64]:
    try:
        shares = np.asarray(prior, np.float64)
    except (TypeError, ValueError):
        raise InputError(name, found=f"{prior!r:.80}", accepted="numbers") from None
    if shares.ndim == 0 and classes == 2:
        shares = np.array([1 - shares, shares])
    if shares.shape != (classes,):
        accepted = f"shape ({classes},)" + " or the share of class 1" * (classes == 2)
        raise InputError(name, found=f"shape {shares.shape}", accepted=accepted)
    if not (shares > 0).all() or abs(shares.sum() - 1) > _SUM:
        found = ", ".join(f"{share:g}" for share in shares[:5])
        raise InputError(name, found=found, accepted="positive shares that sum to 1")
    return shares


def parse_resampled(text: str) -> Resampled:
    """Return what `rate=0.1`, `class_weight=1,9` or `class_weight=balanced` means.

    Raises
    ------
    InputError: another form.
    """
    kind, _, value = text.partition("=")
    if value == "balanced":
        return {kind: value}
    try:
        numbers = [float(number) for number in value.split(",")]
    except ValueError:
        accepted = "rate=R, class_weight=W,W,... or class_weight=balanced"
        raise InputError("resampled", found=f"{text!r:.80}", accepted=accepted) from None
    return {kind: numbers[0] if len(numbers) == 1 else numbers}


def class_weights(
    resampled: Resampled, counts: NDArray[Any]
) -> tuple[tuple[float, ...], NDArray[np.float64] | None]:
    """Return the weight of each class in the training, and weights (K,) of the rows of a fit.

    Parameters
    ----------
    resampled: as in `recalib.fit`.
    counts: (K,), the rows of the fit with each label.

    Raises
    ------
    InputError: another form.
    """
    accepted = "one of rate and class_weight, such as {'rate': 0.1}"
    if not isinstance(resampled, Mapping) or set(resampled) not in ({"rate"}, {"class_weight"}):
        raise InputError("resampled", found=f"{resampled!r:.80}", accepted=accepted)
    ((kind, value),) = resampled.items()
    field, classes = f"resampled.{kind}", len(counts)
    if kind == "class_weight" and isinstance(value, str) and value == "balanced":
        if not counts.all():
            found = f"no row of class {int(np.argmin(counts))}"
            raise InputError(field, found=found, accepted="rows of each class for balanced")
        value = (counts.sum() / (classes * counts)).tolist()
    form = f"{classes} positive numbers"
    form += ", or balanced" if kind == "class_weight" else ", or one for class 0 of 2"
    try:
        weights = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise InputError(field, found=f"{value!r:.80}", accepted=form) from None
    if weights.ndim == 0 and kind == "rate" and classes == 2:
        weights = np.array([weights, 1.0])
    if weights.shape != (classes,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError(field, found=f"{value!r:.80}", accepted=form)
    weights = weights / weights.max()
    return tuple(weights.tolist()), 1 / weights if kind == "rate" else None
