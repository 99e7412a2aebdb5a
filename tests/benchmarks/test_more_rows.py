"""The benchmark of refits to more rows: its pairs have the stated losses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from benchmarks.folds import POPULATIONS
from benchmarks.more_rows import Growth, Pair, grow, pair, takeover
from benchmarks.promotion import REFITS

_POPULATION = POPULATIONS["temperature 2, K=10"]


def test_four_times_the_rows_replace_a_champion_once() -> None:
    """Later refits have as many rows as the new champion, and only a gain replaces it."""
    growth = grow(_POPULATION, "vector", 100, np.random.default_rng(0), refits=4)
    assert growth == Growth([0], 0.0)


@pytest.mark.parametrize("too_sure", [True, False])
def test_pair_has_the_stated_loss(too_sure: bool) -> None:
    """The NLL on other rows, with known class probabilities; its noise is below 0.1%."""
    slopes = pair(_POPULATION, 300, 0.02, too_sure=too_sure)
    assert (slopes.challenger > 0.5 > slopes.champion) == too_sure
    z, log_q = _POPULATION.draw(np.random.default_rng(1), 20_000)
    champion, challenger = (
        -(np.exp(log_q) * scipy.special.log_softmax(slope * z, axis=1)).sum(axis=1).mean()
        for slope in slopes
    )
    assert challenger / champion == pytest.approx(1.02, abs=0.002)


def test_an_equal_challenger_takes_over_and_a_much_worse_one_does_not() -> None:
    rng = np.random.default_rng(0)
    assert takeover(_POPULATION, Pair(0.49, 0.51), 1_000, rng) == 0
    assert takeover(_POPULATION, Pair(0.5, 1.0), 100, rng) == REFITS
