"""`python -m benchmarks.promotion`: how often are champions replaced without and with a reason?

A run is 20 refits, each on N fresh rows, compared with the champion by
`recalib.fitting.promotion`. Shares of runs have exact 95% intervals (Clopper and Pearson). Parts:

- `normal`: the gain in standard errors of each refit is normal with variance 1, and its mean is 0
  without a change. A change of `s` standard errors arises after 10 refits. This is the distribution
  of two different maps that are equally good in truth.
- `fits`: champion and challengers are fits of P parameters to N rows each, in the limit of large N.
  With ξ ~ N(0, I) the champion's deviation and η that of a refit, in standard deviations of a
  parameter, N times the gain is ½|ξ − η|² − C, and its standard error |ξ − η|, with C of
  cross-validation in k folds, ½ χ²(P (k − 1)) (2k − 1)/(k − 1)².
- `maps`: real fits of each map at each N (`--maps`, `--rows`); `benchmarks.newton_folds` fits
  `temperature`.

`normal` also has runs whose refits are all worse by exactly the rule's margin.

`--thresholds` replaces the thresholds of a gain and of a pooled gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import scipy.stats
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.logit_populations import POPULATIONS, Population
from benchmarks.newton_folds import fit_folds, nll
from recalib.fitting import promotion
from recalib.fitting.cross_validation import (
    Candidate,
    compare_by_cross_validation,
    mean_and_standard_error,
    random_folds,
)
from recalib.fitting.fit import fit
from recalib.fitting.request import configure_pair

Values = NDArray[np.float64]
#: Of a gain and of a pooled gain, in standard errors.
Thresholds = tuple[float, float]

#: Refits of a run.
REFITS = 20
#: A change arises after this number of refits.
_QUIET = 10
_BLOCK = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["normal", "fits", "maps"])
    parser.add_argument("--runs", type=int, default=200_000, help="runs of each line")
    parser.add_argument(
        "--thresholds",
        type=float,
        nargs=2,
        default=(promotion.THRESHOLD, promotion.POOLED_THRESHOLD),
    )
    parser.add_argument("--maps", nargs="+", default=["temperature", "vector"])
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1_000])
    parser.add_argument("--population", default="temperature 2, K=10")
    arguments = parser.parse_args()
    thresholds = tuple(arguments.thresholds)
    if arguments.part == "normal":
        _normal(arguments.runs, thresholds)
    elif arguments.part == "fits":
        _fits(arguments.runs, thresholds)
    else:
        population = POPULATIONS[arguments.population]
        for name in arguments.maps:
            for rows in arguments.rows:
                _maps(population, name, rows, arguments.runs, thresholds)


def first_promotions(means: Values, errors: Values, thresholds: Thresholds) -> NDArray[np.int64]:
    """Return the index of the refit that is promoted first, or R.

    Parameters
    ----------
    means, errors: (runs, R), gains and standard errors on equal numbers of rows.
    """
    promoted = means > thresholds[0] * errors
    for refit in range(1, means.shape[1]):
        count = min(promotion.MAX_POOLED, refit + 1)
        block = slice(refit + 1 - count, refit + 1)
        sums = means[:, block].sum(axis=1)
        noise = np.sqrt((errors[:, block] ** 2).sum(axis=1))
        promoted[:, refit] |= sums > thresholds[1] * noise
    return np.where(promoted.any(axis=1), promoted.argmax(axis=1), means.shape[1])


def share(count: int, runs: int) -> str:
    """Return count / runs with its exact 95% interval."""
    low = scipy.stats.beta.ppf(0.025, count, runs - count + 1) if count else 0.0
    high = scipy.stats.beta.ppf(0.975, count + 1, runs - count) if count < runs else 1.0
    return f"{count / runs:7.2%} ({low:.2%} to {high:.2%})"


def _blocks(runs: int) -> Iterator[tuple[Generator, int]]:
    for seed, start in enumerate(range(0, runs, _BLOCK)):
        yield np.random.default_rng(seed), min(_BLOCK, runs - start)


def _normal(runs: int, thresholds: Thresholds) -> None:
    for gain in (0.0, 2.0, 3.0, 4.0):
        firsts = []
        for rng, size in _blocks(runs):
            z = rng.standard_normal((size, REFITS))
            if gain:
                z[:, _QUIET:] += gain
            firsts.append(first_promotions(z, np.ones_like(z), thresholds))
        first = np.concatenate(firsts)
        if gain:
            quiet = first >= _QUIET
            first, total = first[quiet], int(quiet.sum())
            within = [share(int((first < _QUIET + wait).sum()), total) for wait in (1, 5)]
            print(f"gain of {gain:g}: first refit {within[0]}, within five {within[1]}")
        else:
            print(f"no change: {share(int((first < REFITS).sum()), runs)} of {runs:,} runs")

    promoted = sum(
        int((rng.standard_normal((size, REFITS)) > thresholds[0]).any(axis=1).sum())
        for rng, size in _blocks(runs)
    )
    print(f"four times the rows, worse by the margin: {share(promoted, runs)} of {runs:,} runs")


def _fits(runs: int, thresholds: Thresholds) -> None:
    for folds in (20, 5):
        for numbers in (1, 2, 5, 10, 20, 50, 200, 1_000):
            promoted = 0
            for rng, size in _blocks(runs):
                champion = rng.chisquare(numbers, (size, 1))
                distance = rng.noncentral_chisquare(numbers, champion, (size, REFITS))
                spread = rng.chisquare(numbers * (folds - 1), (size, REFITS))
                correction = spread * (2 * folds - 1) / (2 * (folds - 1) ** 2)
                errors = np.sqrt(distance + spread / (folds - 1) ** 2)
                first = first_promotions(distance / 2 - correction, errors, thresholds)
                promoted += int((first < REFITS).sum())
            print(
                f"P = {numbers:5d}, {folds:2d} folds, no change: {share(promoted, runs)}",
                flush=True,
            )


def _maps(population: Population, name: str, rows: int, runs: int, thresholds: Thresholds) -> None:
    means, errors = np.empty((runs, REFITS)), np.empty((runs, REFITS))
    for run in range(runs):
        rng = np.random.default_rng([run, rows])
        gains = fast_gains if name == "temperature" else real_gains
        means[run], errors[run] = gains(population, name, rows, rng, REFITS)
    first = first_promotions(means, errors, thresholds)
    ratios = means / errors
    print(
        f"{name}, N={rows}: {share(int((first < REFITS).sum()), runs)} of {runs} runs; gains in "
        f"standard errors: mean {ratios.mean():+.2f}, standard deviation {ratios.std():.2f}, within"
        f" a run {np.sqrt(ratios.var(axis=1, ddof=1).mean()):.2f}",
        flush=True,
    )


def real_gains(
    population: Population, name: str, rows: int, rng: Generator, refits: int
) -> tuple[Values, Values]:
    """Return the gains of refits over a champion and their standard errors, (refits,) each."""
    candidate = Candidate(*configure_pair(name, "nll", {}))
    champion = fit(*population.sample(rng, rows), name)
    gains = []
    for _ in range(refits):
        selection = compare_by_cross_validation(candidate, champion, *population.sample(rng, rows))
        gains.append((selection.reference_nll - selection.nll, selection.standard_error))
    means, errors = np.array(gains).T
    return means, errors


def fast_gains(
    population: Population, name: str, rows: int, rng: Generator, refits: int
) -> tuple[Values, Values]:
    """Return `real_gains` of a map that `fit_folds` can fit."""
    start = rng.bit_generator.state
    z, y = population.sample(rng, rows)
    champion = fit_folds(name, z, y, np.ones((1, rows), np.bool_))
    gains = []
    folds = random_folds(rows)
    held_out = folds == np.arange(folds.max() + 1)[:, None]
    for _ in range(refits):
        z, y = population.sample(rng, rows)
        fits = fit_folds(name, z, y, ~held_out)
        if champion is None or fits is None:
            rng.bit_generator.state = start
            return real_gains(population, name, rows, rng, refits)
        ours = nll(z, y, fits)[folds, np.arange(rows)]
        gains.append(mean_and_standard_error(nll(z, y, champion)[0] - ours))
    means, errors = np.array(gains).T
    return means, errors


if __name__ == "__main__":
    main()
