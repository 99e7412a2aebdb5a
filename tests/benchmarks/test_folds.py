"""The benchmark of folds measures bias against a truth that is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.folds import KINDS, POPULATIONS, biases


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


def test_more_folds_have_less_bias() -> None:
    """A fit to 80% of the rows has a larger excess than one to 95%."""
    truths, differences = biases(POPULATIONS["temperature 2, K=2"], "vector", 200, 4)
    assert (truths > 0).all()
    assert set(differences) == set(KINDS)
    assert differences["5"].mean() > differences["10"].mean() > differences["20"].mean() > 0
