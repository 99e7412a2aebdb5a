"""Predictions for hypothesis: few rows, and many ties, zeros, ones and values on edges of bins."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

__all__ = ["bins", "coarse", "distinct"]

Case = tuple[NDArray[np.float64], NDArray[np.int64]]

bins = st.sampled_from([1, 2, 5, 10, 15, 100])


@st.composite
def coarse(draw: st.DrawFn, rows: st.SearchStrategy[int] | None = None) -> Case:
    """Probabilities (N, K) that are fractions with a small denominator, and labels (N,).

    Each row divides up to 10 or 15 units, so that edges k/10 and k/15 and ties are common.
    """
    n = draw(rows if rows is not None else st.integers(1, 30))
    k = draw(st.integers(2, 5))
    units = draw(st.sampled_from([1, 2, 10, 15]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shares = rng.multinomial(units, rng.dirichlet(np.ones(k)), size=n)
    return shares / units, rng.integers(0, k, n)


@st.composite
def distinct(draw: st.DrawFn) -> Case:
    """`coarse` without ties inside a row, so that class order does not matter."""
    n, k = draw(st.integers(1, 30)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = np.stack([rng.choice(20, k, replace=False) for _ in range(n)])
    return weights / weights.sum(axis=1, keepdims=True), rng.integers(0, k, n)
