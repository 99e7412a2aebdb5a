"""Long-tailed class frequencies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.stats.groups import group_counts


def long_tail_sizes(first: int, classes: int, ratio: float) -> NDArray[np.int64]:
    """Return the number of rows of each class, (K,): ⌊n₀ ρ^(i / (K − 1))⌋ for class i.

    `first` is n₀, the rows of class 0; `ratio` is ρ in (0, 1], the last class's share of n₀. The
    paper does not mention rounding; truncation gives its 20,431 rows of CIFAR-10 at ρ = 0.1, and
    19,573 of CIFAR-100.

    Source: paper 003, appendix C, eq. 16.
    """
    if not 0 < ratio <= 1:
        raise InputError("data.long_tail", found=f"{ratio:g}", accepted="above 0, at most 1")
    exact = first * ratio ** (np.arange(classes) / (classes - 1))
    # Rounding errors must not reduce an exact integer.
    return np.floor(exact + 1e-9 * first).astype(np.int64)


def long_tailed(
    labels: NDArray[np.int64], classes: int, ratio: float, seed: int
) -> NDArray[np.int64]:
    """Return the sorted indices of the kept rows, chosen at random within each class.

    Raises
    ------
    InputError: a class with fewer rows than its size in the long tail; n₀ is the size of class 0.
    """
    sizes = group_counts(labels, classes)
    rng = np.random.default_rng(seed)
    rows = []
    for label, size in enumerate(long_tail_sizes(int(sizes[0]), classes, ratio)):
        if size > sizes[label]:
            found = f"{sizes[label]} rows of class {label}"
            raise InputError("data.long_tail", found=found, accepted=f"at least {size}")
        rows.append(rng.permutation(np.flatnonzero(labels == label))[:size])
    return np.sort(np.concatenate(rows))
