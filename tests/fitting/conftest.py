"""Data of known calibration."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

__all__ = ["draw", "draw_with_wrong_labels"]


def draw(
    rows: int, classes: int, temperature: float, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits, and labels drawn from softmax(logits / temperature): the truth is known."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    # Gumbel's trick: the largest of z/T plus Gumbel noise is a draw from softmax(z/T).
    labels = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, labels


@pytest.fixture
def known() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """2,000 rows of 6 classes with temperature 2."""
    return draw(2000, 6, 2.0)


def draw_with_wrong_labels(
    rows: int, classes: int, share: float, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Calibrated logits whose labels are random in `share` of the rows: no temperature fits."""
    logits, labels = draw(rows, classes, 1.0, seed)
    rng = np.random.default_rng(seed + 1)
    random = rng.integers(0, classes, rows)
    return logits, np.where(rng.random(rows) < share, random, labels)
