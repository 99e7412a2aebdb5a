"""`python -m benchmarks.more_rows`: when does a refit to four times the rows replace a champion?

A run has 20 refits of one map, each to 4 N fresh rows of an unchanged population. The champion was
fitted to N rows. Shares of runs have exact 95% intervals (Clopper and Pearson). Parts:

- `known`: champion and refits are temperatures with a known NLL. The champion's excess over the
  best temperature is 1/(2N), the mean of a fit of one parameter to N rows, and a refit's NLL is
  higher than the champion's by a share of it: 0, the margin of the rule (1%) or twice the margin.
  The champion is not sure enough and the refits are too sure, or the reverse. Output: runs whose
  first refit is promoted, and runs that promote any.
- `fits`: real fits (`--maps`). Output: runs whose first refit is promoted; runs that promote a fit
  that is worse in truth, at all, and by more than the margin; and the mean number of promotions in
  a run. A promoted refit is the champion of the next ones. The truth is the NLL on other rows with
  known class probabilities.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.folds import POPULATIONS, Population
from benchmarks.newton_folds import fit_folds, nll
from benchmarks.promotion import REFITS, share
from recalib.fitting import promotion
from recalib.fitting.cross_validation import mean_and_standard_error, random_folds

__all__ = ["Growth", "Pair", "grow", "main", "pair", "takeover"]

Values = NDArray[np.float64]

#: A refit's rows divided by the first champion's, and rows for the truth.
_GROWTH, _TEST_ROWS = int(promotion.MIN_GROWTH), 4_000
#: Rows for the truth of a known temperature, and the range of its slopes.
_KNOWN_ROWS, _SLOPES = 40_000, (0.05, 3.0)
_LOSSES = (0.0, promotion.MARGIN, 2 * promotion.MARGIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["known", "fits"])
    parser.add_argument("--runs", type=int, default=100, help="runs of each line")
    parser.add_argument("--maps", nargs="+", default=["temperature", "vector"])
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1_000])
    parser.add_argument("--population", nargs="+", default=["temperature 2, K=10"])
    arguments = parser.parse_args()
    for name in arguments.population:
        for rows in arguments.rows:
            if arguments.part == "known":
                _known(name, rows, arguments.runs)
            else:
                for map in arguments.maps:
                    _fits(POPULATIONS[name], map, rows, arguments.runs)


class Pair(NamedTuple):
    """The slopes 1/T of a champion and of its refits."""

    champion: float
    challenger: float


def pair(population: Population, rows: int, loss: float, *, too_sure: bool) -> Pair:
    """Return a champion of N rows, and a challenger that is worse by a share of its NLL.

    The challenger is too sure and the champion not sure enough, or the reverse.
    """
    z, log_q = population.draw(np.random.default_rng(0), _KNOWN_ROWS)
    mean = (np.exp(log_q) * z).sum() / len(z)

    def true_nll(slope: float) -> float:
        return float(scipy.special.logsumexp(slope * z, axis=1).mean() - slope * mean)

    best = scipy.optimize.minimize_scalar(true_nll, bounds=_SLOPES, method="bounded")
    low, high = ((_SLOPES[0], best.x), (best.x, _SLOPES[1]))
    sides = (low, high) if too_sure else (high, low)
    champion_nll = best.fun + 1 / (2 * rows)
    targets = champion_nll, champion_nll * (1 + loss)
    return Pair(
        *(
            scipy.optimize.brentq(lambda slope, target=target: true_nll(slope) - target, *side)
            for side, target in zip(sides, targets, strict=True)
        )
    )


def takeover(population: Population, slopes: Pair, rows: int, rng: Generator) -> int:
    """Return the index of the first refit that is promoted, or `REFITS`."""
    earlier: list[promotion.Gain] = []
    for refit in range(REFITS):
        z, y = population.sample(rng, _GROWTH * rows)
        theirs, ours = nll(z, y, np.array(slopes)[:, None])
        gain = promotion.Gain(len(y), *mean_and_standard_error(theirs - ours))
        decision = promotion.decide(
            "challenger",
            "champion",
            gain,
            champion_nll=float(theirs.mean()),
            earlier=earlier,
            growth=_GROWTH,
        )
        if decision.rule is not None:
            return refit
        earlier.append(gain)
    return REFITS


def _known(name: str, rows: int, runs: int) -> None:
    population = POPULATIONS[name]
    for too_sure in (True, False):
        for loss in _LOSSES:
            slopes = pair(population, rows, loss, too_sure=too_sure)
            rngs = (np.random.default_rng([run, rows]) for run in range(runs))
            firsts = np.array([takeover(population, slopes, rows, rng) for rng in rngs])
            side = "too sure" if too_sure else "not sure enough"
            print(
                f"{name}, refits to {_GROWTH * rows}, {side}, worse by {loss:.0%}:"
                f" first refit {share(int((firsts == 0).sum()), runs)},"
                f" any of {REFITS} {share(int((firsts < REFITS).sum()), runs)}",
                flush=True,
            )


def _fits(population: Population, name: str, rows: int, runs: int) -> None:
    results = [
        grow(population, name, rows, np.random.default_rng([run, rows])) for run in range(runs)
    ]
    first = sum(result.refits[:1] == [0] for result in results)
    worse = sum(result.largest_loss > 0 for result in results)
    beyond = sum(result.largest_loss > promotion.MARGIN for result in results)
    mean = np.mean([len(result.refits) for result in results])
    print(
        f"{name}, N={rows}, refits to {_GROWTH * rows}: first refit {share(first, runs)}, any worse"
        f" {share(worse, runs)}, by more than the margin {share(beyond, runs)};"
        f" {mean:.2f} promotions a run",
        flush=True,
    )


class Growth(NamedTuple):
    """A run of refits to more rows."""

    #: The refits that were promoted, from 0.
    refits: list[int]
    #: The largest loss of NLL in truth by a promotion, as a share of the champion's NLL; 0 if every
    #: promotion was an improvement.
    largest_loss: float


def grow(
    population: Population, name: str, rows: int, rng: Generator, refits: int = REFITS
) -> Growth:
    """Return the promotions of refits to four times the champion's rows, without any change.

    A promoted refit is the champion of the next ones, which have as many rows as it has.
    """
    champion, champion_rows = _fitted(population, name, rows, rng)[0], rows
    test, log_q = population.draw(rng, _TEST_ROWS)
    promoted, loss = [], 0.0
    earlier: list[promotion.Gain] = []
    for refit in range(refits):
        challenger, z, y = _fitted(population, name, _GROWTH * rows, rng)
        gain, champion_nll = _gain(name, z, y, champion)
        decision = promotion.decide(
            "challenger",
            "champion",
            gain,
            champion_nll=champion_nll,
            earlier=earlier,
            growth=_GROWTH * rows / champion_rows,
        )
        earlier.append(gain)
        if decision.rule is None:
            continue
        promoted.append(refit)
        before, after = (_true_nll(fit, test, log_q) for fit in (champion, challenger))
        loss = max(loss, (after - before) / before)
        champion, champion_rows, earlier = challenger, _GROWTH * rows, []
    return Growth(promoted, loss)


def _fitted(
    population: Population, name: str, rows: int, rng: Generator
) -> tuple[Values, Values, NDArray[np.int64]]:
    """Return the parameters (1, P) of a fit to fresh rows, and the rows."""
    while True:
        z, y = population.sample(rng, rows)
        fit = fit_folds(name, z, y, np.ones((1, rows), np.bool_))
        if fit is not None:
            return fit, z, y


def _gain(
    name: str, z: Values, y: NDArray[np.int64], champion: Values
) -> tuple[promotion.Gain, float]:
    """Return the gain of a fit in folds over a champion, and the champion's NLL."""
    folds = random_folds(len(y))
    fits = fit_folds(name, z, y, folds != np.arange(folds.max() + 1)[:, None])
    theirs = nll(z, y, champion)[0]
    if fits is None:
        return promotion.Gain(len(y), 0.0, 1.0), float(theirs.mean())
    ours = nll(z, y, fits)[folds, np.arange(len(y))]
    return promotion.Gain(len(y), *mean_and_standard_error(theirs - ours)), float(theirs.mean())


def _true_nll(fit: Values, z: Values, log_q: Values) -> float:
    """Return the mean −Σ q log p over rows with class probabilities q."""
    labels = range(z.shape[1])
    by_label = [nll(z, np.full(len(z), label), fit)[0] for label in labels]
    return float((np.exp(log_q) * np.stack(by_label, axis=1)).sum() / len(z))


if __name__ == "__main__":
    main()
