"""The first step of fits of curves: temperature scaling of all rows.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from recalib.core.arrays import Numbers
from recalib.fitting.newton import best_temperature
from recalib.fitting.objective_sums import objective_at
from recalib.fitting.problem import Problem, Solution, TemperatureFit
from recalib.fitting.rows import ArrayRows, Block, Rows, as_numbers
from recalib.objectives.nll import NegativeLogLikelihood


def first_temperature(problem: Problem, *, of_classes: bool = False) -> TemperatureFit:
    """Return the best single temperature, and report it; see `best_unit` for `of_classes`."""
    single = best_unit(problem.rows) if of_classes else best_temperature(problem.rows)
    problem.report("temperature", single.iterations, single.nll)
    return single


def best_unit(rows: Rows) -> TemperatureFit:
    """Return the best single temperature, of two classes `unit_of_log_odds`."""
    single = best_temperature(rows)
    if rows.shape[1] != 2:
        return single
    return unit_of_log_odds(single, rows.sum(log_odds_sums))


def log_odds_sums(block: Block) -> Numbers:
    """Return Σ w, Σ w d and Σ w d² of d = z₁ − z₀ of two classes, without masked rows."""
    odds = as_numbers(block.logits[:, 1]) - as_numbers(block.logits[:, 0])
    w = np.isfinite(odds) * as_numbers(block.counts)
    odds = np.where(np.isfinite(odds), odds, 0.0)
    return np.array([w.sum(), w @ odds, w @ odds**2])


def unit_of_log_odds(single: TemperatureFit, sums: Numbers) -> TemperatureFit:
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


class CalibratedRows:
    """The result of a one-vs-rest map on the fitted rows, added class by class."""

    def __init__(self, rows: ArrayRows) -> None:
        self._logits, self._labels, self._weights = rows.logits, rows.labels, rows.weights
        count = len(rows.labels)
        self._has_masks = bool(np.isneginf(rows.logits).any())
        #: (N,): the sum and the maximum of the scores p, and log p of the label.
        self._total, self._largest, self._label = np.zeros(count), np.zeros(count), np.zeros(count)

    def add(self, k: int, log_p: Numbers) -> None:
        """Add log p (N,) of class k before the division of a row by its sum."""
        if self._has_masks:
            log_p = np.where(np.isneginf(self._logits[:, k]), -np.inf, log_p)
        p = np.exp(log_p)
        self._total += p
        np.maximum(self._largest, p, out=self._largest)
        hits = self._labels == k
        self._label[hits] = log_p[hits]

    @property
    def nll(self) -> float:
        """−1/N Σ w log p(y), in nats."""
        return float(np.average(np.log(self._total) - self._label, weights=self._weights))

    @property
    def confidences(self) -> Numbers:
        """(N,): the largest probability of each row."""
        return self._largest / self._total


def absence_warnings(absent: int, classes: int) -> tuple[str, ...]:
    """Return the warning of a map whose curves of absent classes are not fitted."""
    if not absent:
        return ()
    consequence = "theirs stay as temperature scaling has them"
    return (f"{absent} of {classes} classes have no label: {consequence}",)


def with_nll(problem: Problem, solution: Solution) -> Solution:
    """Return the solution with the NLL of its map as the objective, in nats."""
    nll = NegativeLogLikelihood()
    return replace(
        solution, objective=objective_at(problem.rows, problem.map, nll, solution.parameters)
    )
