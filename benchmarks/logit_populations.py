"""Populations with known class probabilities, for the benchmark of promotions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.random import Generator
from numpy.typing import NDArray

Values = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Population:
    """Logits from `logits` (N, K), class probabilities softmax(truth(logits))."""

    classes: int
    logits: Callable[[Generator, int, int], Values]
    truth: Callable[[Values], Values]

    def draw(self, rng: Generator, rows: int) -> tuple[Values, Values]:
        """Return logits (N, K) and log q (N, K)."""
        z = self.logits(rng, rows, self.classes)
        return z, scipy.special.log_softmax(self.truth(z), axis=1)

    def sample(self, rng: Generator, rows: int) -> tuple[Values, Labels]:
        """Return logits (N, K) and labels (N,)."""
        z, log_q = self.draw(rng, rows)
        return z, (log_q + rng.gumbel(size=z.shape)).argmax(axis=1)


def _normal(rng: Generator, rows: int, classes: int) -> Values:
    return 3 * rng.standard_normal((rows, classes))


def _confident(rng: Generator, rows: int, classes: int) -> Values:
    """Logits of a network that is right on most rows."""
    z = rng.standard_normal((rows, classes))
    z[np.arange(rows), rng.integers(classes, size=rows)] += 6
    return 1.5 * z


def _fixed(classes: int, scale: float) -> Values:
    return scale * np.random.default_rng(7).standard_normal(classes)


def _long_tail(z: Values) -> Values:
    """The last class is a hundred times as rare as the first."""
    return z / 1.5 - np.linspace(0, np.log(100), z.shape[1])


def _by_class(z: Values) -> Values:
    return z * np.exp(_fixed(z.shape[1], 0.3)) / 2 + _fixed(z.shape[1], 0.7)


def _noisy(z: Values) -> Values:
    """A tenth of the labels is wrong."""
    return np.logaddexp(np.log(0.9) + scipy.special.log_softmax(z, axis=1),
                        np.log(0.1 / z.shape[1]))  # fmt: skip


POPULATIONS: Mapping[str, Population] = {
    "temperature 2, K=2": Population(2, _normal, lambda z: z / 2),
    "calibrated, K=10": Population(10, _normal, lambda z: z),
    "temperature 2, K=10": Population(10, _normal, lambda z: z / 2),
    "each class differs, K=10": Population(10, _normal, _by_class),
    "long tail, K=10": Population(10, _normal, _long_tail),
    "wrong labels, K=10": Population(10, _normal, _noisy),
    "confident, K=10": Population(10, _confident, lambda z: z / 1.5),
    "each class differs, K=50": Population(50, _normal, _by_class),
}
