"""A small problem and recipe, and a watcher for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from recalib.recipe import Recipe
from training.data import Split, Splits
from training.data.arrays import Array
from training.engine.artifacts import LoadedData
from training.engine.loop import Position

__all__ = ["Memory", "Onlooker", "load", "recipe", "splits"]


def splits(train: int = 120, noise: float = 1.0, seed: int = 0) -> Splits:
    """Three classes around three points of the plane."""
    rng = np.random.default_rng(seed)
    parts = []
    for rows in (train, 60, 60):
        labels = rng.integers(0, 3, rows)
        centres = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
        inputs = centres[labels] + noise * rng.standard_normal((rows, 2))
        parts.append(Split.with_all_rows(Array(inputs), labels))
    return Splits(*parts, classes=3, facts={"features": 2})


def load(seed: int = 0) -> LoadedData:
    """Return these splits, without weights; a process can import it."""
    return LoadedData(splits(seed=seed), None)


def recipe(**more: Any) -> Recipe:
    """Three epochs of a linear model."""
    defaults: dict[str, Any] = {
        "data": {"source": "arrays"},
        "model": {"name": "linear"},
        "epochs": 3,
        "batch_size": 32,
        "device": "cpu",
    }
    return Recipe.of({**defaults, **more})


class Memory:
    """Keeps checkpoints in memory."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.saved = 0

    def load(self) -> bytes | None:
        return self.data

    def save(self, data: bytes) -> None:
        self.data = data
        self.saved += 1


class Onlooker:
    """A watcher that records positions and history; `check` runs before each step."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.check = check
        self.records: list[dict[str, Any]] = []
        self.positions: list[Position] = []

    def at(self, position: Position) -> None:
        self.positions.append(position)

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        self.records = list(history)
