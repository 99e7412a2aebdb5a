"""The public functions `evaluate` and `load`."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from recalib.calibrator import Calibrator
from recalib.metrics.evaluate import evaluate as _evaluate

__all__ = ["evaluate", "load"]


def evaluate(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
) -> dict[str, float]:
    """Return every metric of predictions, by name.

    Parameters
    ----------
    labels: (N,), integers in [0, K).
    logits: (N, K), or
    probabilities: (N, K); exactly one of the two.

    Raises
    ------
    InputError: invalid input, or both or neither of the two arrays.
    """
    estimates = _evaluate(labels, logits=logits, probabilities=probabilities)
    return {name: estimate.value for name, estimate in estimates.items()}


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a parameter file; see `Calibrator.load`."""
    return Calibrator.load(path)
