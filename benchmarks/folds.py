"""`python -m benchmarks.folds`: which folds estimate the NLL of a fit best?

A map is fitted to N rows of a population whose class probabilities q are known. The truth is the
mean excess Σ q (log q − log p) of the fit on other rows, without the noise of labels. An estimate
is the mean over the N rows of log q_y − log p_y, each p under a fit to the other folds. Each line
has the mean truth over draws, and the mean of estimate − truth for every kind of folds, in units
of 0.001 nats, with its standard error; `*` marks the kind with the smallest absolute bias.

Kinds: `stratified 5` deals the rows of each class evenly to five folds; `5`, `10` and `20` are
random; `5 corrected` adds the difference between the full fit and the mean of the folds' fits, on
all rows (Burman, A comparative study of ordinary cross-validation, Biometrika 1989, eq. 2.3).

A held-out row of random folds is independent of the fit that scores it. So the mean of the estimate
is the mean excess of the folds' fits on other rows, which has little noise. The other two kinds are
this mean for `5`, plus the difference of the two estimates on the same draw.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.random import Generator
from numpy.typing import NDArray

from recalib.fitting.cross_validation import Candidate
from recalib.fitting.fit import configure_pair
from recalib.ops import NumpyOps

__all__ = ["KINDS", "POPULATIONS", "Population", "biases", "main"]

Values = NDArray[np.float64]
Labels = NDArray[np.int64]

_TEST_ROWS = 4_000
_FLOOR = -750.0


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


def _stratified(rng: Generator, labels: Labels, count: int) -> NDArray[np.int64]:
    order = rng.permutation(len(labels))
    by_label = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[by_label] = np.arange(len(labels)) % count
    return folds


def _random(rng: Generator, labels: Labels, count: int) -> NDArray[np.int64]:
    return rng.permutation(len(labels)) % count


_Fits = list[tuple[NDArray[np.bool_], Mapping[str, Values]]]
#: The numbers of random folds.
_RANDOM = (5, 10, 20)
KINDS = ("stratified 5", "5", "5 corrected", "10", "20")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="draws of each line")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 1_000])
    parser.add_argument(
        "--maps", nargs="+", default=["temperature", "class_temperature", "vector", "dirichlet"]
    )
    parser.add_argument("--population", default="", help="part of a population's name")
    arguments = parser.parse_args()
    print(f"{'':46s} {'truth':>6s} " + " ".join(f"{kind:>14s}" for kind in KINDS))
    nearest = dict.fromkeys(KINDS, 0)
    for name, population in POPULATIONS.items():
        if arguments.population not in name:
            continue
        for map in arguments.maps:
            for rows in arguments.rows:
                truths, differences = biases(population, map, rows, arguments.runs)
                label = f"{name}, {map}, N={rows}"
                nearest[_print(label, truths, differences)] += 1
    print(f"smallest absolute bias: {nearest}")


def biases(
    population: Population, map: str, rows: int, runs: int
) -> tuple[Values, dict[str, Values]]:
    """Return the true excess (runs,) of each draw, and estimate − truth by kind of folds."""
    candidate = Candidate(*configure_pair(map, "nll", {}))
    truths = np.empty(runs)
    differences = {kind: np.empty(runs) for kind in KINDS}
    for run in range(runs):
        rng = np.random.default_rng([run, rows])
        z, y = population.sample(rng, rows)
        test, log_q = population.draw(rng, _TEST_ROWS)
        full = candidate.fit(z, y).parameters
        truths[run] = _excess(candidate, full, test, log_q)
        for count in _RANDOM:
            fits = _fits(candidate, z, y, _random(rng, y, count))
            excess = [_excess(candidate, fit, test, log_q) for _, fit in fits]
            differences[str(count)][run] = np.mean(excess) - truths[run]
            if count == 5:
                five = fits
        base = _estimate(candidate, z, y, five)
        stratified = _estimate(candidate, z, y, _fits(candidate, z, y, _stratified(rng, y, 5)))
        differences["stratified 5"][run] = differences["5"][run] + stratified - base
        correction = _nll(candidate, full, z, y).mean()
        correction -= np.mean([_nll(candidate, fit, z, y).mean() for _, fit in five])
        differences["5 corrected"][run] = differences["5"][run] + correction
    return truths, differences


def _fits(candidate: Candidate, z: Values, y: Labels, folds: NDArray[np.int64]) -> _Fits:
    """Return the rows of each fold, and the parameters of the fit to the others."""
    rows = [folds == fold for fold in range(folds.max() + 1)]
    return [(out, candidate.fit(z[~out], y[~out]).parameters) for out in rows]


def _estimate(candidate: Candidate, z: Values, y: Labels, fits: _Fits) -> float:
    """Return the mean held-out NLL."""
    return float(sum(_nll(candidate, fit, z[out], y[out]).sum() for out, fit in fits)) / len(y)


def _excess(
    candidate: Candidate, parameters: Mapping[str, Values], z: Values, log_q: Values
) -> float:
    """Return the mean Σ q (log q − log p)."""
    return float(np.sum(np.exp(log_q) * (log_q - _log_p(candidate, parameters, z)))) / len(z)


def _nll(candidate: Candidate, parameters: Mapping[str, Values], z: Values, y: Labels) -> Values:
    return -_log_p(candidate, parameters, z)[np.arange(len(y)), y]


def _log_p(candidate: Candidate, parameters: Mapping[str, Values], z: Values) -> Values:
    ops = NumpyOps()
    constants = candidate.map.constants(ops, parameters)
    log_p: Values = candidate.map.log_probabilities(ops, z, constants)
    return np.maximum(log_p, _FLOOR)


def _print(label: str, truths: Values, differences: Mapping[str, Values]) -> str:
    """Print a line, and return the kind with the smallest absolute bias."""
    best = min(differences, key=lambda kind: abs(float(differences[kind].mean())))
    cells = []
    for kind, values in differences.items():
        error = values.std(ddof=1) / np.sqrt(len(values))
        mark = "*" if kind == best else " "
        cells.append(f"{1e3 * values.mean():+7.2f} ±{1e3 * error:5.2f}{mark}")
    print(f"{label:46s} {1e3 * truths.mean():6.2f} " + " ".join(cells), flush=True)
    return best


if __name__ == "__main__":
    main()
