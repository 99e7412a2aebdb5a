"""Random legal parameters of any map, for its contract tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.maps import Map

#: Of a table whose length the rows of a fit determine.
_LENGTH = 16

__all__ = ["some_logits", "some_parameters"]


def some_parameters(the_map: Map, classes: int, seed: int = 0) -> dict[str, NDArray[np.float64]]:
    """Return legal parameters of `the_map`, drawn according to their links."""
    rng = np.random.default_rng(seed)
    draw = {
        "log": lambda shape: np.exp(rng.normal(0.3, 0.5, shape)),
        "simplex": lambda shape: rng.dirichlet(np.ones(shape)),
        "real": lambda shape: rng.normal(size=shape) / np.sqrt(max(shape, default=1)),
        "probability": lambda shape: rng.random(shape),
        "ascending": lambda shape: np.sort(rng.random(shape), axis=-1),
        "sorted": lambda shape: np.sort(rng.normal(size=shape) * 2, axis=-1),
        "log_probability": lambda shape: np.log(rng.random(shape)),
        # Log-odds from -3 to 3 or so, with gaps as a fit leaves them.
        "rising": lambda shape: (
            np.cumsum(rng.uniform(0.5, 1.5, shape), axis=-1) * (6 / shape[-1]) - 3
        ),
    }
    return {
        name: np.asarray(
            draw[parameter.link](tuple(n or _LENGTH for n in parameter.shape)), np.float64
        )
        for name, parameter in the_map.parameters(classes).items()
    }


def some_logits(rows: int, classes: int, seed: int = 1, dtype: type = np.float64) -> NDArray:
    """Return random logits, several units apart as a network's are."""
    return (np.random.default_rng(seed).normal(size=(rows, classes)) * 4).astype(dtype)
