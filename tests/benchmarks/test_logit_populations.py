"""The populations of the benchmark of promotions have the stated probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.logit_populations import POPULATIONS


@pytest.mark.parametrize("name", POPULATIONS)
def test_labels_have_the_stated_probabilities(name: str) -> None:
    population = POPULATIONS[name]
    rng = np.random.default_rng(0)
    z, log_q = population.draw(rng, 4_000)
    assert z.shape == log_q.shape == (4_000, population.classes)
    np.testing.assert_allclose(np.exp(log_q).sum(axis=1), 1)
    _, labels = population.sample(np.random.default_rng(0), 4_000)
    shares = np.bincount(labels, minlength=population.classes) / 4_000
    np.testing.assert_allclose(shares, np.exp(log_q).mean(axis=0), atol=0.035)
