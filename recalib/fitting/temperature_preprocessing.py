"""The first step of fits of lookup maps: temperature scaling, then log-odds.

Rows are processed in blocks to bound memory.

Legend: N rows, K classes, G groups of rows with equal odds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.fitting.newton import TemperatureFit, fit_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.maps import Parameters
from recalib.maps.one_vs_rest import MAX_LOG_ODDS
from recalib.maps.top_label import split_top_label
from recalib.ops import NumpyOps

__all__ = ["CalibratedRows", "Groups", "ScaledRows", "group_by_odds", "make_solution", "mean_nll"]

#: Numbers in a block: 32 MB of float64.
_BLOCK = 4_000_000

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
    #: (N,), all ones for equal weights.
    weights: _Vector

    @classmethod
    def from_problem(cls, problem: Problem) -> ScaledRows:
        """Fit the temperature and compute the log-odds of predictions."""
        single = fit_temperature(problem.logits, problem.labels, problem.weights)
        problem.report("temperature", single.iterations, single.nll)
        rows = len(problem.labels)
        top, odds, total = np.empty(rows, np.intp), np.empty(rows), np.empty(rows)
        ops = NumpyOps()
        for block in _blocks(rows, problem.classes):
            z = problem.logits[block].astype(np.float64) / single.temperature
            parts = split_top_label(ops, z)
            top[block], odds[block] = parts.top[:, 0], parts.odds[:, 0]
            total[block] = ops.take_along(z, parts.top)[:, 0] + np.logaddexp(-odds[block], 0.0)
        weights = np.ones(rows) if problem.weights is None else problem.weights
        return cls(problem, single, top, np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS), total, weights)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(N,): true if the prediction is the label."""
        return np.asarray(self.top == self.problem.labels)

    @property
    def count(self) -> float:
        """The sum of weights."""
        return float(self.weights.sum())

    def iter_classes(self) -> Iterator[tuple[int, _Vector, NDArray[np.bool_]]]:
        """Yield each class, its log-odds (N,) within ±`MAX_LOG_ODDS`, and a mask of its label."""
        z, labels = self.problem.logits, self.problem.labels
        for block in _blocks(self.problem.classes, len(labels)):
            logs = z[:, block].astype(np.float64) / self.single.temperature - self.total[:, None]
            with np.errstate(divide="ignore"):
                odds = logs - np.log1p(-np.exp(np.minimum(logs, 0.0)))
            for k, column in enumerate(odds.T, block.start):
                class_odds = np.where(self.top == k, self.odds, column)
                yield k, np.clip(class_odds, -MAX_LOG_ODDS, MAX_LOG_ODDS), labels == k


@dataclass(frozen=True)
class Groups:
    """Binary outcomes, grouped by equal log-odds."""

    #: (G,), ascending and distinct.
    odds: _Vector
    #: (G,): the weighted numbers of rows and of hits.
    rows: _Vector
    hits: _Vector
    #: (N,): the group of each row; None if groups were left out.
    group: NDArray[np.intp] | None = None

    @property
    def probability(self) -> _Vector:
        """(G,): the probability of a hit by the log-odds."""
        return np.asarray(scipy.special.expit(self.odds))


class CalibratedRows:
    """The result of a one-vs-rest map on the fitted rows, added class by class."""

    def __init__(self, scaled: ScaledRows) -> None:
        self._problem = scaled.problem
        rows = len(scaled.problem.labels)
        #: (N,): the sum and the maximum of the scores p, and log p of the label.
        self._total, self._largest, self._label = np.zeros(rows), np.zeros(rows), np.zeros(rows)

    def add(self, k: int, log_p: _Vector, hits: NDArray[np.bool_]) -> None:
        """Add log p (N,) of class k before the division of a row by its sum."""
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


def group_by_odds(odds: _Vector, hits: NDArray[np.bool_], weights: _Vector) -> Groups:
    """Group rows (N,) by their log-odds; groups without weight are left out."""
    distinct, group = np.unique(odds, return_inverse=True)
    rows, hit = (np.bincount(group, v).astype(np.float64) for v in (weights, weights * hits))
    if rows.all():
        return Groups(distinct, rows, hit, group)
    used = rows > 0
    return Groups(distinct[used], rows[used], hit[used])


def make_solution(
    scaled: ScaledRows,
    parameters: dict[str, _Vector],
    warnings: list[str],
    calibrated: CalibratedRows | None = None,
) -> Solution:
    """Return fitted parameters as a solution whose objective is the weighted NLL.

    Parameters
    ----------
    calibrated: the result of the fitted map; by default the map is applied.
    """
    single, problem = scaled.single, scaled.problem
    all_parameters = {"temperature": np.array(single.temperature), **parameters}
    reached = f"temperature at its {single.bound} bound {single.temperature:.6g}"
    return Solution(
        all_parameters,
        objective=mean_nll(problem, all_parameters) if calibrated is None else calibrated.nll,
        iterations=single.iterations,
        converged=single.converged,
        bounds=[reached] if single.bound else [],
        warnings=[*single.warnings, *warnings],
        confidences=None if calibrated is None else calibrated.confidences,
    )


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
