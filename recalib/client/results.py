"""Results of calibration and of labels; other results are resources of `recalib.contract`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.contract.labels import LabelOutcome


@dataclass(frozen=True)
class Labelled:
    """The outcomes of labels: `items` in their order, and `counts` by status."""

    counts: dict[str, int]
    items: list[LabelOutcome]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated probabilities, float32 (N, K), and ids (N,), None for a row without an id."""

    probabilities: NDArray[np.float32]
    prediction_ids: list[str | None]
    #: Whether the model has no champion: these are the classifier's own probabilities.
    uncalibrated: bool = False
    #: Whether each class is in the prediction set of a row, (N, K), if they were requested.
    sets: NDArray[np.bool_] | None = None
    #: The Venn-Abers interval [p0, p1] of each probability, (N, K, 2), if they were requested.
    intervals: NDArray[np.float32] | None = None
    #: Whether each row reaches the threshold of rejection, (N,), if this was requested.
    accepted: NDArray[np.bool_] | None = None
    #: Numbers of the states that adapted the answers to label shift, (N,), 0 for none.
    adaptations: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Likeliest:
    """The most likely classes of each row, in descending order, and their probabilities, (N, k).

    Classes of equal probability are in the order of their indices.
    """

    classes: NDArray[np.int64]
    probabilities: NDArray[np.float32]
