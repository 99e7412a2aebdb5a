"""The benchmark of promotions: its fast fits are those of the library, its shares exact."""

from __future__ import annotations

import numpy as np

from benchmarks.logit_populations import POPULATIONS
from benchmarks.promotion import fast_gains, real_gains, share


def test_fast_fits_are_those_of_the_library() -> None:
    population = POPULATIONS["long tail, K=10"]
    fast, real = (
        gains(population, "temperature", 150, np.random.default_rng(5), 2)
        for gains in (fast_gains, real_gains)
    )
    np.testing.assert_allclose(fast, real, rtol=1e-3, atol=1e-5)


def test_share_has_the_exact_interval() -> None:
    """Clopper and Pearson: 0 of 72 is at most 5% with 97.5% confidence."""
    assert share(0, 72) == "  0.00% (0.00% to 4.99%)"
    assert share(72, 72).endswith("(95.01% to 100.00%)")
    assert share(5, 100) == "  5.00% (1.64% to 11.28%)"
