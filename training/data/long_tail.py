"""Classes that get rarer and rarer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError

__all__ = ["long_tail_sizes", "long_tailed"]


def long_tail_sizes(first: int, classes: int, ratio: float) -> NDArray[np.int64]:
    """Return how many rows each class keeps, (K,): ⌊n₀ ρ^(i / (K − 1))⌋ of class i.

    `first` n₀, the rows of class 0; `ratio` ρ in (0, 1], the last class's share of them. The paper
    says nothing of fractions; cutting them off gives its 20,431 rows of CIFAR-10 at ρ = 0.1, and
    19,573 of CIFAR-100.

    Source: paper 003, appendix C, eq. 16.
    """
    if not 0 < ratio <= 1:
        raise InputError("data.long_tail", found=f"{ratio:g}", accepted="above 0, at most 1")
    exact = first * ratio ** (np.arange(classes) / (classes - 1))
    # A whole number that arithmetic has made a hair smaller is still that number.
    return np.floor(exact + 1e-9 * first).astype(np.int64)


def long_tailed(
    labels: NDArray[np.int64], classes: int, ratio: float, seed: int
) -> NDArray[np.int64]:
    """Return the places, in their order, of the rows that are kept: by chance within each class.

    Raises
    ------
    InputError: a class that has fewer rows than it is to keep, as n₀ is class 0's number of rows.
    """
    sizes = np.bincount(labels, minlength=classes)
    rng = np.random.default_rng(seed)
    kept = []
    for one, size in enumerate(long_tail_sizes(int(sizes[0]), classes, ratio)):
        if size > sizes[one]:
            found = f"{sizes[one]} rows of class {one}"
            raise InputError("data.long_tail", found=found, accepted=f"at least {size}")
        kept.append(rng.permutation(np.flatnonzero(labels == one))[:size])
    return np.sort(np.concatenate(kept))
