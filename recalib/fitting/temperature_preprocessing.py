"""The first step of fits of lookup maps: temperature scaling, then log-odds.

Rows are processed in blocks to bound memory.

Legend: N rows, K classes, G groups of rows with equal odds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem, Solution, TemperatureFit
from recalib.maps import Parameters
from recalib.maps.one_vs_rest import MAX_LOG_ODDS
from recalib.ops import NumpyOps

#: Numbers in a block: 32 MB of float64.
_BLOCK = 4_000_000

#: Log-odds this close are equal: rows with the same logits in another order differ by rounding.
_TIE = 1e-12

_Vector = NDArray[np.float64]


@dataclass(frozen=True)
class ScaledRows:
    """The rows of a problem after temperature scaling."""

    problem: Problem
    single: TemperatureFit
    #: (N,): the predicted class, the first of ties.
    top: NDArray[np.intp]
    #: (N,): log-odds of the prediction, within ±`MAX_LOG_ODDS`.
    odds: _Vector
    #: (N,): log Σ exp(z / T).
    total: _Vector
    #: (N,), with the effective number of rows as their sum.
    weights: _Vector

    @classmethod
    def from_problem(cls, problem: Problem, *, of_classes: bool = False) -> ScaledRows:
        """Fit the temperature and compute the log-odds of predictions.

        With `of_classes` the temperature of two classes is `unit_of_log_odds`.
        """
        single = fit_unit(problem) if of_classes else _fit_temperature(problem)
        problem.report("temperature", single.iterations, single.nll)
        rows = len(problem.labels)
        top, odds, total = np.empty(rows, np.intp), np.empty(rows), np.empty(rows)
        for block in _blocks(rows, problem.classes):
            top[block], odds[block], total[block] = top_odds(
                problem.logits[block], single.temperature
            )
        weights = np.ones(rows) if problem.weights is None else problem.weights
        return cls(problem, single, top, odds, total, weights)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(N,): true if the prediction is the label."""
        return np.asarray(self.top == self.problem.labels)

    def groups(self, target: str | None) -> Groups:
        """Return the groups of the map's only curve, of class 1 or of the top label."""
        if target != "positive_class":
            return group_by_odds(self.odds, self.correct, self.weights)
        odds = np.where(self.top == 1, self.odds, -self.odds)
        return group_by_odds(odds, self.problem.labels == 1, self.weights)

    def iter_groups(self) -> Iterator[Groups | None]:
        """Yield the groups of each class, None for a class without labels."""
        for odds, hits in self.iter_classes():
            yield group_by_odds(odds, hits, self.weights) if hits.any() else None

    def iter_classes(self) -> Iterator[tuple[_Vector, NDArray[np.bool_]]]:
        """Yield the log-odds of each class (N,), within ±`MAX_LOG_ODDS`, and its labels (N,)."""
        z, labels = self.problem.logits, self.problem.labels
        for block in _blocks(self.problem.classes, len(labels)):
            columns = np.array(z[:, block].T, np.float64, order="C")
            columns /= self.single.temperature
            columns -= self.total
            for k, logs in enumerate(columns, block.start):
                yield _odds_of_logs(logs, self.top == k, self.odds), labels == k


@dataclass(frozen=True)
class Groups:
    """Binary outcomes, grouped by equal log-odds."""

    #: (G,), ascending and distinct.
    odds: _Vector
    #: (G,): the weighted numbers of rows and of hits.
    rows: _Vector
    hits: _Vector
    #: (N,): the rows in ascending order of their odds; None for sums of rows elsewhere.
    order: NDArray[np.intp] | None = None
    #: (G,): the place in `order` of the first row of each group.
    starts: NDArray[np.intp] | None = None

    @property
    def probability(self) -> _Vector:
        """(G,): the probability of a hit by the log-odds."""
        with np.errstate(over="ignore"):  # four times as fast as scipy.special.expit
            return np.asarray(1 / (1 + np.exp(-self.odds)))

    @property
    def base_rate(self) -> float:
        """The share of hits, with one row added that is half a hit."""
        return float((self.hits.sum() + 0.5) / (self.rows.sum() + 1.0))

    def of_rows(self, values: _Vector) -> _Vector:
        """Return for each row (N,) the value of its group; `values` is (G,)."""
        assert self.order is not None  # noqa: S101
        assert self.starts is not None  # noqa: S101
        result = np.empty(len(self.order))
        if len(values) < len(result):
            values = np.repeat(values, np.diff(self.starts, append=len(result)))
        result[self.order] = values
        return result


class CalibratedRows:
    """The result of a one-vs-rest map on the fitted rows, added class by class."""

    def __init__(self, scaled: ScaledRows) -> None:
        self._problem = scaled.problem
        rows = len(scaled.problem.labels)
        self._has_masks = bool(np.isneginf(scaled.problem.logits).any())
        #: (N,): the sum and the maximum of the scores p, and log p of the label.
        self._total, self._largest, self._label = np.zeros(rows), np.zeros(rows), np.zeros(rows)

    def add(self, k: int, log_p: _Vector, hits: NDArray[np.bool_]) -> None:
        """Add log p (N,) of class k before the division of a row by its sum."""
        if self._has_masks:
            log_p = np.where(np.isneginf(self._problem.logits[:, k]), -np.inf, log_p)
        p = np.exp(log_p)
        self._total += p
        np.maximum(self._largest, p, out=self._largest)
        self._label[hits] = log_p[hits]

    @property
    def nll(self) -> float:
        """−1/N Σ w log p(y), in nats."""
        losses = np.log(self._total) - self._label
        return float(np.average(losses, weights=self._problem.weights))

    @property
    def confidences(self) -> _Vector:
        """(N,): the largest probability of each row."""
        return self._largest / self._total


def _fit_temperature(problem: Problem) -> TemperatureFit:
    return fit_temperature(problem.logits, problem.labels, problem.weights, device=problem.device)


def fit_unit(problem: Problem) -> TemperatureFit:
    """Return the best single temperature, of two classes `unit_of_log_odds`."""
    single = _fit_temperature(problem)
    if problem.classes != 2:
        return single
    return unit_of_log_odds(single, log_odds_sums(problem.logits, problem.weights))


def log_odds_sums(logits: Floats, weights: _Vector | None) -> _Vector:
    """Return Σ w, Σ w d and Σ w d² of d = z₁ − z₀ of two classes, without masked rows."""
    odds = logits[:, 1].astype(np.float64) - logits[:, 0]
    w = np.isfinite(odds) * (1.0 if weights is None else weights)
    odds = np.where(np.isfinite(odds), odds, 0.0)
    return np.array([w.sum(), w @ odds, w @ odds**2])


def unit_of_log_odds(single: TemperatureFit, sums: _Vector) -> TemperatureFit:
    """Return the temperature that maps of two classes divide log-odds by.

    It is the best single temperature, but at most the standard deviation of the log-odds, with one
    row at 0 added. A base rate far from that of the training rows, or scores with another zero,
    makes the best single temperature too large, at worst infinite, and a curve of it flat. Rows
    without an error make it too small, and every probability 0 or 1: it is then the deviation too.

    Parameters
    ----------
    sums: `log_odds_sums` of all rows.
    """
    rows, first, second = sums
    mean = first / (rows + 1)
    deviation = math.sqrt(max(second / (rows + 1) - mean**2, 0.0))
    if deviation == 0 or (single.end != "lower" and deviation >= single.temperature):
        return single
    return replace(single, temperature=deviation, end=None, is_constant=False)


def top_odds(logits: Floats, temperature: float) -> tuple[NDArray[np.intp], _Vector, _Vector]:
    """Return the predicted class of rows, its log-odds and log Σ exp(z / T), each (N,)."""
    z = logits / np.float64(temperature)
    at = np.arange(len(z)), z.argmax(axis=1)
    largest = z[at]
    others = np.exp(np.subtract(z, largest[:, None], out=z), out=z)
    others[at] = 0.0
    rest = np.einsum("ij->i", others)
    with np.errstate(divide="ignore"):  # a row with a single class
        odds = -np.log(rest)
    return at[1], np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS), largest + np.log1p(rest)


def class_odds(
    logits: Floats, temperature: float, classes: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the log-odds of some classes in rows (n, K), within ±`MAX_LOG_ODDS`: (C, n)."""
    top, odds, total = top_odds(logits, temperature)
    logs = logits[:, classes].T / np.float64(temperature) - total
    return _odds_of_logs(logs, top == classes[:, None], odds)


def _odds_of_logs(logs: _Vector, is_top: NDArray[np.bool_], top_odds: _Vector) -> _Vector:
    """Return the log-odds from log p; those of predictions, `top_odds` (n,), are more exact."""
    with np.errstate(divide="ignore"):
        odds = logs - np.log1p(-np.exp(np.minimum(logs, 0.0)))
    np.copyto(odds, top_odds, where=is_top)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS, out=odds)


def absence_warnings(absent: int, classes: int) -> tuple[str, ...]:
    """Return the warning of a map whose curves of absent classes are not fitted."""
    if not absent:
        return ()
    consequence = "theirs stay as temperature scaling has them"
    return (f"{absent} of {classes} classes have no label: {consequence}",)


def group_by_odds(odds: _Vector, hits: NDArray[np.bool_], weights: _Vector) -> Groups:
    """Group rows (N,) by their log-odds."""
    order = np.argsort(odds)
    ascending, rows = odds[order], weights[order]
    hit = rows * hits[order]
    starts = group_starts(ascending)
    if len(starts) < len(order):
        ascending = ascending[starts]
        rows, hit = np.add.reduceat(rows, starts), np.add.reduceat(hit, starts)
    return Groups(ascending, rows, hit, order, starts)


def group_starts(ascending: _Vector) -> NDArray[np.intp]:
    """Return the index of the first of each group of equal log-odds, as `_TIE` defines it."""
    return np.flatnonzero(np.diff(ascending, prepend=-np.inf) > _TIE)


def with_nll(problem: Problem, solution: Solution) -> Solution:
    """Return the solution with the NLL of its map as the objective."""
    return replace(solution, objective=mean_nll(problem, solution.parameters))


def mean_nll(problem: Problem, parameters: Parameters) -> float:
    """Return −1/N Σ w log p(y) of the fitted map, in nats."""
    ops = NumpyOps()
    log_p = np.empty(len(problem.labels))
    for block in _blocks(len(log_p), problem.classes):
        z = problem.logits[block].astype(np.float64)
        of_classes = problem.map.log_probabilities(ops, z, parameters)
        log_p[block] = ops.pick(of_classes, problem.labels[block])
    return -float(np.average(log_p, weights=problem.weights))


def _blocks(length: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // width)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
