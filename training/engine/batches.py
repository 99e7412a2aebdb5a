"""Which rows each step of a run takes: a function of the seed, the epoch and the step alone.

Nothing random is kept from one step to the next, so that a run which goes on from a checkpoint
takes the very rows, and draws the very numbers, that it would have taken and drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.recipe import Recipe
from training.engine.objective import Terms

__all__ = ["Step", "epoch_steps", "held_out", "seed_of", "shares"]

#: What a stream of random numbers is for.
_HELD_OUT, _ORDER = 1, 2


@dataclass(frozen=True)
class Step:
    """One step of the optimiser: rows of the training set, over all processes."""

    rows: NDArray[np.int64]
    terms: Terms


def epoch_steps(
    recipe: Recipe, rows: int, epoch: int, *, interleaved: bool, parts: int = 1
) -> list[Step]:
    """Return the steps of an epoch, every row in one of them.

    A last batch that has no two rows for each of `parts` is left out, as no norm can be taken of
    one. Interleaved epochs are two halves: the primary loss on most rows, then the secondary on
    those that are held out for it.
    """
    if not interleaved:
        return _cut(recipe, _shuffled(np.arange(rows), recipe.seed, epoch, 0), "both", parts)
    kept = held_out(recipe, rows)
    others = np.setdiff1d(np.arange(rows), kept)
    first = _cut(recipe, _shuffled(others, recipe.seed, epoch, 0), "primary", parts)
    return first + _cut(recipe, _shuffled(kept, recipe.seed, epoch, 1), "secondary", parts)


def held_out(recipe: Recipe, rows: int) -> NDArray[np.int64]:
    """Return the training rows that interleaved training keeps for the secondary loss."""
    count = min(max(round(rows * recipe.interleave.held_out), 1), rows - 1)
    order = np.random.default_rng([recipe.seed, _HELD_OUT]).permutation(rows)
    return np.sort(order[:count])


def shares(step: Step, accumulate: int, rank: int, processes: int) -> list[NDArray[np.int64]]:
    """Return what one process takes of a step, in the parts that it adds up."""
    return [one[rank::processes] for one in np.array_split(step.rows, accumulate)]


def seed_of(*numbers: int) -> int:
    """Return a seed for torch that belongs to these numbers alone."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _shuffled(rows: NDArray[np.int64], seed: int, epoch: int, half: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, _ORDER, epoch, half]).permutation(rows)


def _cut(recipe: Recipe, rows: NDArray[np.int64], terms: Terms, parts: int) -> list[Step]:
    size = recipe.batch_size
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [Step(one, terms) for one in batches if len(one) >= 2 * parts]
