"""The cost of prediction ids: microseconds per row in a batch of 1,000."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import Goal, interleaved
from recalib.prediction_ids import Predictions, SigningKey, mint, summarise_predictions

__all__ = ["run"]

_ROWS, _TIMES = 1_000, 30


def run() -> list[Goal]:
    """Measure `mint` and `summarise_predictions` with 10 classes."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(_ROWS, 10)).astype(np.float32)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    key, predictions = SigningKey(1, bytes(32)), summarise_predictions(logits, probabilities)

    def summarise_and_mint() -> Predictions:
        predictions = summarise_predictions(logits, probabilities)
        mint(key, 1, 1, 1.8e9, predictions)
        return predictions

    acts = {"mint": lambda: mint(key, 1, 1, 1.8e9, predictions), "whole": summarise_and_mint}
    seconds = interleaved(acts, _TIMES, clock=time.thread_time)
    mint_us, whole_us = (min(seconds[name]) / _ROWS * 1e6 for name in acts)
    return [
        Goal("microseconds to mint a prediction id", mint_us, 3, True),
        Goal("microseconds for an id and what it says, K=10", whole_us, 3, True),
    ]
