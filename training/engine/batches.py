"""The rows of each training step: a function of the seed, the epoch and the step alone.

No random state passes from one step to the next. A run that resumes from a checkpoint therefore
uses the same rows and random numbers as an uninterrupted run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.recipe import Recipe
from training.engine.objective import Terms

#: Identifiers of the random streams.
_HELD_OUT, _ORDER = 1, 2


@dataclass(frozen=True)
class Step:
    """One optimiser step: its rows of the training set, over all processes."""

    rows: NDArray[np.int64]
    terms: Terms


def epoch_steps(
    recipe: Recipe, rows: int, epoch: int, *, interleaved: bool, parts: int = 1
) -> list[Step]:
    """Return the steps of an epoch; each row is in one step.

    A last batch with fewer than two rows for each of `parts` is dropped, because batch
    normalisation needs two rows. An interleaved epoch has two halves: the primary loss on most
    rows, then the secondary loss on the held-out rows.
    """
    if not interleaved:
        return _split(recipe, _shuffle(np.arange(rows), recipe.seed, epoch, 0), "both", parts)
    held_out_rows = held_out(recipe, rows)
    other_rows = np.setdiff1d(np.arange(rows), held_out_rows)
    first = _split(recipe, _shuffle(other_rows, recipe.seed, epoch, 0), "primary", parts)
    return first + _split(
        recipe, _shuffle(held_out_rows, recipe.seed, epoch, 1), "secondary", parts
    )


def held_out(recipe: Recipe, rows: int) -> NDArray[np.int64]:
    """Return the training rows that interleaved training reserves for the secondary loss."""
    count = min(max(round(rows * recipe.interleave.held_out), 1), rows - 1)
    order = np.random.default_rng([recipe.seed, _HELD_OUT]).permutation(rows)
    return np.sort(order[:count])


def shares(step: Step, accumulate: int, rank: int, processes: int) -> list[NDArray[np.int64]]:
    """Return the rows of one process in a step, split into gradient accumulation parts."""
    return [np.array_split(part, processes)[rank] for part in np.array_split(step.rows, accumulate)]


def seed_of(*numbers: int) -> int:
    """Return a torch seed derived from these numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _shuffle(rows: NDArray[np.int64], seed: int, epoch: int, half: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, _ORDER, epoch, half]).permutation(rows)


def _split(recipe: Recipe, rows: NDArray[np.int64], terms: Terms, parts: int) -> list[Step]:
    size = recipe.batch_size
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [Step(batch, terms) for batch in batches if len(batch) >= 2 * parts]
