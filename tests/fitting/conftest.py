"""Data of known calibration."""

from __future__ import annotations

import importlib
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.metrics.evaluate import evaluate

__all__ = ["draw"]


def draw(
    rows: int, classes: int, temperature: float, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits, and labels drawn from softmax(logits / temperature): the truth is known."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    # Gumbel's trick: the largest of z/T plus Gumbel noise is a draw from softmax(z/T).
    labels = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, labels


@pytest.fixture(autouse=True)
def short_cards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards of this folder have two metrics, unless a test uses `whole_cards`.

    All of them, with intervals, are nine tenths of a small fit's time; tests/metrics tests them.
    """
    if "whole_cards" not in request.fixturenames:
        fitting = importlib.import_module("recalib.fitting.fit")
        monkeypatch.setattr(fitting, "evaluate", partial(evaluate, metrics=["nll", "ece"]))


@pytest.fixture
def whole_cards() -> None:
    """Cards with all metrics."""


@pytest.fixture
def known() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """2,000 rows of 6 classes with temperature 2."""
    return draw(2000, 6, 2.0)
