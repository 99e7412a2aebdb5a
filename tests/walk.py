"""The functions of the library that a call visits: `python -m tests.walk`."""

from __future__ import annotations

import cProfile
import pstats
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

import recalib

__all__ = ["MAX_FUNCTIONS", "functions_of", "warm_fit"]

#: Of a fit of arrays by temperature scaling (record 0063). It may only fall.
MAX_FUNCTIONS = 105
_ROOT = Path(recalib.__file__).parent


def functions_of(action: Callable[[], object]) -> dict[str, list[str]]:
    """Return the names of the functions that a call visits, by file."""
    with cProfile.Profile() as profile:
        action()
    visited = defaultdict(list)
    for file, _, name in pstats.Stats(profile).stats:  # type: ignore[attr-defined]
        if Path(file).is_relative_to(_ROOT):
            visited[str(Path(file).relative_to(_ROOT))].append(name)
    return dict(visited)


def warm_fit() -> Callable[[], object]:
    """Return a call of `recalib.fit` of 2,000 rows and 5 classes, after a first one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 2000)
    logits = rng.normal(size=(2000, 5))
    logits[np.arange(2000), labels] += 2
    recalib.fit(logits, labels)
    return lambda: recalib.fit(logits, labels)


def main() -> None:
    """Print the functions of each file."""
    visited = functions_of(warm_fit())
    for file in sorted(visited):
        print(f"{file}: {', '.join(sorted(visited[file]))}")
    print(f"{sum(map(len, visited.values()))} functions in {len(visited)} files")


if __name__ == "__main__":
    main()
