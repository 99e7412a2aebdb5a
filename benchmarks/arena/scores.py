"""Scores of the arena: win rate, PHI, harm, each with a bootstrap interval over sources of data.

- Win rate: the share of the other methods with a higher log loss, mean over pairs (CalArena).
- PHI: the share of the base model's log loss that the method removes; median and mean over the
  pairs whose base model has at least .001 nats.
- Harm: the share of pairs with a log loss more than 5% above that of the base model.

A method that fails on a pair has an infinite loss there: it beats none, and it harms.

Legend: P pairs, M methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.arena.calibrators import BASE, PEERS
from benchmarks.arena.sets import family

_RESAMPLES = 1_000
_HARM = 1.05
_LEAST_LOSS, _LEAST_BEST = 1e-3, 1e-2

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Losses:
    """Log losses (P, M) of the methods on pairs that all of them have, and each pair's numbers."""

    methods: tuple[str, ...]
    pairs: tuple[str, ...]
    nll: Matrix
    rows: NDArray[np.intp]

    def of(self, method: str) -> Matrix:
        return self.nll[:, self.methods.index(method)]

    def with_rows(self, low: int, high: int) -> Losses:
        """Return the pairs with at least `low` calibration rows, and fewer than `high`."""
        kept = np.flatnonzero((self.rows >= low) & (self.rows < high))
        pairs = tuple(self.pairs[i] for i in kept)
        return Losses(self.methods, pairs, self.nll[kept], self.rows[kept])


@dataclass(frozen=True)
class Score:
    """A line of the table; `win_rate_interval` has 95%."""

    method: str
    win_rate: float
    win_rate_interval: tuple[float, float]
    peers_beaten: float
    phi_median: float
    phi_mean: float
    harm: float


def losses(lines: Iterable[dict[str, Any]], several: bool) -> Losses:
    """Return the losses of pairs with two classes, or with several."""
    of: dict[str, dict[str, float]] = {}
    classes, rows = {}, {}
    for line in lines:
        if "error" in line or "nll" in line:
            of.setdefault(line["pair"], {})[line["method"]] = line.get("nll", np.inf)
        if "nll" in line:
            classes[line["pair"]], rows[line["pair"]] = line["classes"], line["rows"]
    of = {pair: row for pair, row in of.items() if (classes.get(pair, 0) > 2) == several}
    methods = sorted({method for row in of.values() for method in row})
    pairs = sorted(pair for pair, row in of.items() if len(row) == len(methods))
    nll = np.array([[of[pair][method] for method in methods] for pair in pairs])
    return Losses(
        tuple(methods),
        tuple(pairs),
        nll.reshape(len(pairs), len(methods)),
        np.array([rows[pair] for pair in pairs], np.intp),
    )


def win_rates(nll: Matrix) -> Matrix:
    """Return (P, M): the share of the other methods that each method beats on each pair."""
    beaten = (nll[:, :, None] < nll[:, None, :]).sum(axis=2)
    return np.asarray(beaten / max(1, nll.shape[1] - 1))


def scores(table: Losses, rng: np.random.Generator) -> list[Score]:
    """Return the methods' scores, the highest win rate first."""
    rates = win_rates(table.nll)
    low, high = _interval(rates, table.pairs, rng)
    base = table.of(BASE)
    removable = base >= _LEAST_LOSS
    peers = [table.methods.index(name) for name in table.methods if name in PEERS]
    result = []
    for i, name in enumerate(table.methods):
        nll = table.nll[:, i]
        others = [j for j in peers if j != i]
        phi = 1 - nll[removable] / base[removable]
        result.append(
            Score(
                name,
                float(rates[:, i].mean()),
                (float(low[i]), float(high[i])),
                float((nll[:, None] < table.nll[:, others]).mean()) if others else 0.0,
                float(np.median(phi)),
                float(phi.mean()),
                float((nll > _HARM * base).mean()),
            )
        )
    return sorted(result, key=lambda score: -score.win_rate)


def _interval(
    values: Matrix, pairs: Sequence[str], rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Return the 95% interval of the column means; sets of one source are drawn together."""
    sources = [family(pair.partition("__")[0]) for pair in pairs]
    _, index = np.unique(sources, return_inverse=True)
    counts = np.bincount(index)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, index, values)
    drawn = rng.integers(len(counts), size=(_RESAMPLES, len(counts)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1, keepdims=True)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return low, high


def regret(
    table: Losses, policy: str, members: Sequence[str], rng: np.random.Generator
) -> tuple[float, tuple[float, float]]:
    """Return the mean of log(loss of the policy / loss of the best fixed member), and its 95%.

    The best fixed member is one map for each set and classifier: the one with the smallest mean
    loss over its splits, known only afterwards. With one split, that includes its luck. Those whose
    best member has less than .01 nats are left out: a ratio says nothing there.
    """
    cells = np.array([pair.rpartition("__")[0] for pair in table.pairs])
    of_cells = np.unique(cells)
    means = np.array([table.nll[cells == cell].mean(axis=0) for cell in of_cells])
    best = means[:, [table.methods.index(name) for name in members]].min(axis=1)
    kept = best >= _LEAST_BEST
    if not kept.any():
        return 0.0, (0.0, 0.0)
    values = np.log(means[kept][:, [table.methods.index(policy)]] / best[kept, None])
    low, high = _interval(values, list(of_cells[kept]), rng)
    return float(values.mean()), (float(low[0]), float(high[0]))


def ranks(table: Losses) -> list[tuple[str, float]]:
    """Return each method's mean rank by log loss, the lowest first; 1 is the smallest loss."""
    means = rankdata(table.nll, axis=1).mean(axis=0) if table.pairs else []
    return sorted(zip(table.methods, map(float, means), strict=False), key=lambda item: item[1])
