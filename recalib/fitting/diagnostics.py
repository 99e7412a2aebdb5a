"""Does a fit harm? What its rows say about the loss on new rows, and about the rows themselves.

The loss on new rows is the loss l on the rows of the fit plus its optimism. For temperature scaling
by NLL that is 1/N (Akaike 1974), and N times it has the χ² distribution of one number. Other maps
are fitted again to a random part of the rows, with the weight of all: this adds s to the weight of
a row, −1 for the rows left out. The optimism is then −Σ s Δl / Σ s²; to second order its
expectation is the trace term tr(H⁻¹ J) / N (Takeuchi 1976), for any map that can be fitted.
Penalties and smoothing see the same sum of weights.

A claim of harm needs a loss above that of the reference by `MARGINS` and by `Z` standard errors.

Legend: n rows, K classes. Scores are (3, n): NLL, Brier score and error of each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.core.card import Diagnostic, ScoreEstimate
from recalib.fitting.cross_validation import effective_size, mean_and_standard_error
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.repeated_rows import distinct_rows, excess_agreement
from recalib.fitting.solvers import solve
from recalib.maps import Map, Parameters
from recalib.maps.identity import Identity
from recalib.maps.labels import LabelIdentity
from recalib.maps.temperature import Temperature
from recalib.ops import NumpyOps
from recalib.stats.groups import group_sums

#: The least harm: nats, Brier score, share of rows.
MARGINS = {"nll": 0.005, "brier": 0.0025, "error": 0.005}
#: One-sided level .0005 for each score and reference, so that all of them stay below 1%.
Z = 3.3
#: The level of the test of class totals, for all classes together, and the least NLL in nats that
#: equal totals would save.
TOTALS_LEVEL, TOTALS_LOSS = 0.001, 0.005
#: Fewer independent rows show nothing.
_LEAST_ROWS = 30
#: Numbers of the rows that are scored, and the least of these rows.
_SIZE, _LEAST_SAMPLE = 200_000, 1_000
#: Rows of the reference by temperature scaling, which then has an error of 1/2,000 nats.
_TEMPERATURE_ROWS = 1_000
#: With more rows for each parameter the optimism is below a tenth of the margin.
_NO_OPTIMISM = 2_000
#: A quarter of the rows gives the optimism, or as many as this up to a half: larger changes of the
#: weights cost less time, and with few rows they are no longer small.
_PART_ROWS = 1_000
#: How far above its minimum this fit may end: far below the margin of the NLL.
_PART_TOLERANCE = 1e-5
_LEAST_PROBABILITY = 1e-320
_OPS = NumpyOps()
#: Weighted rows count as few below this, and if they are less than half of all rows.
_FEW_ROWS = 50
#: The standard deviation of a column above the median of the others.
_SCALE_RATIO = 100.0


@dataclass(frozen=True)
class Diagnosis:
    """What a card says about a fit."""

    #: Kish's size of the weighted rows, (Σw)² / Σw².
    effective_rows: float
    #: By the names in `MARGINS`; empty for too few rows.
    estimates: dict[str, ScoreEstimate]
    #: What a user is warned of.
    diagnostics: tuple[Diagnostic, ...]
    #: (N,): the largest calibrated probability of each row; None if not of all rows.
    confidences: Numbers | None


@dataclass(frozen=True)
class _Sample:
    """Rows of the fit, or some of them."""

    #: (n, K).
    logits: Numbers
    #: (n,); (n, K) of independent labels.
    labels: NDArray[Any]
    weights: Numbers | None
    #: (n,), from 0: equal for rows that are no independent evidence; None for independent rows.
    units: NDArray[np.intp] | None
    #: The number of independent rows of all rows, by Kish.
    effective: float

    def moments(self, scores: Numbers) -> Numbers:
        """Return the means and the standard errors, (2, ...), of scores (..., n)."""
        arguments = self.weights, self.units
        moments = np.apply_along_axis(mean_and_standard_error, -1, scores, *arguments)
        return np.moveaxis(moments, -1, 0)

    def scores(self, map: Map, parameters: Parameters) -> tuple[Numbers, Numbers]:
        """Return the scores, (3, n), of labels means over labels, and probabilities, (n, K)."""
        p: Numbers = map.probabilities(_OPS, self.logits, parameters)
        if self.labels.ndim == 2:
            of_value = np.where(self.labels, p, 1 - p)
            nll = -np.log(np.maximum(of_value, _LEAST_PROBABILITY))
            each = nll, (1 - of_value) ** 2, of_value < 0.5
            return np.stack([scores.mean(axis=1) for scores in each]), p
        of_label = p[np.arange(len(self.labels)), self.labels]
        scores = np.empty((3, len(self.labels)))
        scores[0] = -np.log(np.maximum(of_label, _LEAST_PROBABILITY))
        scores[1] = np.vecdot(p, p) - 2 * of_label + 1
        scores[2] = p.argmax(axis=1) != self.labels
        return scores, p


def diagnose(
    problem: Problem,
    solution: Solution,
    *,
    groups: NDArray[np.intp] | None = None,
    rows: int | None = None,
    refit: bool = True,
) -> Diagnosis:
    """Return estimates of the losses on new rows, and reasons to distrust the fit.

    Losses of independent labels are means over labels.

    Parameters
    ----------
    problem: the map, the objective and the rows of the fit, or a sample of them.
    groups: (N,), rows that are no independent evidence, if they are known.
    rows: the number of rows of the fit, by default those of the problem.
    refit: False for a map that held-out rows have chosen: its optimism counts as 0.
    """
    if problem.labels.ndim == 2:
        return _diagnose_labels(problem, solution)
    count = len(problem.labels)
    rows = rows or count
    kept = _spaced(count, max(_SIZE // problem.classes, _LEAST_SAMPLE))
    part = problem if len(kept) == count else problem.subset(kept)
    groups = None if groups is None else np.unique(groups[kept], return_inverse=True)[1]
    is_temperature = problem.map.name == "temperature" and problem.objective.name == "nll"
    if is_temperature:
        single, is_determined = float(solution.parameters["temperature"]), True
    else:
        single, is_determined = _single_temperature(part)
    z, y, w = part.logits.astype(np.float64), part.labels, part.weights
    equal = distinct_rows(part.logits) if groups is None else None
    repeats = None if equal is None else excess_agreement(z, single, y, equal)
    size = effective_size(len(y), w, groups if repeats is None else equal)
    sample = _Sample(z, y, w, groups, size * rows / len(y))
    after, p = sample.scores(problem.map, solution.parameters)
    totals = p.sum(axis=0) if w is None else w @ p
    found = [repeats, _class_totals(y, totals, w, size), _column_scale(z)]
    if (effective := problem.rows.weight) < min(_FEW_ROWS, count / 2):
        numbers = {"effective": effective, "rows": float(count)}
        found.insert(0, Diagnostic("effective rows", numbers))
    estimates: dict[str, ScoreEstimate] = {}
    if size >= _LEAST_ROWS and repeats is None:
        references = {"identity": sample.scores(Identity(), {})[0]}
        if is_temperature:
            references["temperature"] = after
        elif is_determined:
            parameters = {"temperature": np.array(single)}
            references["temperature"] = sample.scores(Temperature(), parameters)[0]
        optimism = np.zeros((2, 3))
        if refit and is_temperature:
            optimism = np.outer([1.0, math.sqrt(2)], [1 / sample.effective, 0.0, 0.0])
        elif refit:
            optimism = _optimism(problem, solution, kept, sample, after, rows)
        estimates, harms = _compare(sample, after, references, optimism)
        found += harms
    diagnostics = tuple(filter(None, found))
    confidences = p.max(axis=1) if len(y) == count else solution.confidences
    return Diagnosis(sample.effective, estimates, diagnostics, confidences)


def _single_temperature(problem: Problem) -> tuple[float, bool]:
    """Return the best temperature by NLL, of some rows, and whether it is above 0."""
    part = problem.subset(_spaced(len(problem.labels), _TEMPERATURE_ROWS))
    single = fit_temperature(part.logits, part.labels, part.weights)
    return single.temperature, single.end != "lower"


def _spaced(rows: int, count: int) -> NDArray[np.intp]:
    return np.linspace(0, rows - 1, min(rows, count)).astype(np.intp)


def _optimism(
    problem: Problem,
    solution: Solution,
    kept: NDArray[np.intp],
    sample: _Sample,
    after: Numbers,
    rows: int,
) -> Numbers:
    """Return the optimism of each score and its standard error, (2, 3).

    Parameters
    ----------
    kept: the positions of the sample in the problem.
    rows: the number of rows of the fit.
    """
    count = sum(values.size for values in solution.parameters.values())
    if count * _NO_OPTIMISM < sample.effective or len(problem.labels) < rows:
        return np.zeros((2, 3))
    # Options that the fit has chosen stay too.
    fields = problem.map.__dataclass_fields__
    options = {name: value for name, value in solution.settled.items() if name in fields}
    map, start = replace(problem.map, **options), dict(solution.parameters)
    again = replace(problem, map=map, start=start, progress=None)
    return _optimism_by_part(again, kept, sample, after)


def _optimism_by_part(
    problem: Problem,
    kept: NDArray[np.intp],
    sample: _Sample,
    after: Numbers,
) -> Numbers:
    """Return the optimism of each score and its standard error by a fit to a part of the rows."""
    rows = len(problem.labels)
    count = max(rows // 4, min(rows // 2, _PART_ROWS))
    chosen = np.zeros(rows, np.bool_)
    chosen[np.random.default_rng(0).permutation(rows)[:count]] = True
    part = problem.subset(chosen)
    weights = rows / count * (np.ones(count) if part.weights is None else part.weights)
    solution = solve(replace(part, weights=weights, tolerance=_PART_TOLERANCE))
    change = sample.scores(problem.map, solution.parameters)[0] - after
    # Σ s² / n is rows / count − 1.
    change = change * np.where(chosen[kept], -1.0, count / (rows - count))
    return sample.moments(change)


def _compare(
    sample: _Sample, after: Numbers, references: dict[str, Numbers], optimism: Numbers
) -> tuple[dict[str, ScoreEstimate], list[Diagnostic]]:
    """Return the estimate of each score on new rows, and what is worse than a reference.

    Scores are worse beyond chance, by the larger difference, and once for both proper scores.
    """
    mean = np.average(after, axis=1, weights=sample.weights)
    value = mean + optimism[0]
    above, errors = sample.moments(after - np.stack(list(references.values())))
    names, values = list(references), mean - above
    if "temperature" in references:
        values[names.index("temperature"), 0] += 1 / sample.effective
    errors = np.hypot(errors, optimism[1])
    excess = value - values - Z * errors - list(MARGINS.values())
    estimates, harms = {}, {}
    for i, score in enumerate(MARGINS):
        estimates[score] = ScoreEstimate(
            value=float(value[i]),
            references=dict(zip(names, values[:, i].tolist(), strict=True)),
            standard_errors=dict(zip(names, errors[:, i].tolist(), strict=True)),
        )
        worst = int(excess[:, i].argmax())
        if excess[worst, i] > 0 and not (score == "brier" and "nll" in harms):
            numbers = {"value": float(value[i]), names[worst]: float(values[worst, i])}
            harms[score] = Diagnostic(f"{score} above {names[worst]}", numbers)
    return estimates, list(harms.values())


def _class_totals(
    labels: Integers, totals: Numbers, weights: Numbers | None, effective: float
) -> Diagnostic | None:
    """Return that class totals differ from the sums of probabilities, by the largest ratio.

    Each class has a two-sided test by the Poisson distribution, which has more variance than a sum
    of independent labels; levels are `TOTALS_LEVEL` / K. `effective` is the number of independent
    rows among these. Classes without labels have a warning of their own, and are left out.
    """
    counts = group_sums(labels, weights, len(totals))
    totals = np.where(counts > 0, totals, 0.0)
    share, p = counts / counts.sum(), np.clip(totals / totals.sum(), 0.0, 1.0)
    costs = _total_costs(share, p, effective)
    if costs.sum() < TOTALS_LOSS:
        return None
    ratios = np.abs(np.log(np.maximum(p, 1e-12) / np.maximum(share, 1e-12)))
    worst = int(np.argmax(np.where(costs > 0, ratios, 0.0)))
    numbers = {"class": float(worst), "mean": float(p[worst]), "frequency": float(share[worst])}
    return Diagnostic("class totals", numbers)


def _diagnose_labels(problem: Problem, solution: Solution) -> Diagnosis:
    """Return `diagnose` of labels (N, K), with losses that are means over labels."""
    z, y = problem.logits.astype(np.float64, copy=False), problem.labels.astype(np.bool_)
    w = problem.weights
    sample = _Sample(z, y, w, None, problem.rows.weight)
    after, p = sample.scores(problem.map, solution.parameters)
    found = [_label_totals(y, p, w)]
    estimates: dict[str, ScoreEstimate] = {}
    if sample.effective >= _LEAST_ROWS:
        kept = _spaced(len(y), max(_SIZE // problem.classes, _LEAST_SAMPLE))
        of_kept = None if w is None else w[kept]
        sample = replace(sample, weights=of_kept, logits=z[kept], labels=y[kept])
        after = after[:, kept]
        references = {"identity": sample.scores(LabelIdentity(), {})[0]}
        optimism = _optimism_by_part(problem, kept, sample, after)
        estimates, harms = _compare(sample, after, references, optimism)
        found += harms
    diagnostics = tuple(filter(None, found))
    return Diagnosis(sample.effective, estimates, diagnostics, None)


def _label_totals(
    labels: NDArray[np.bool_], probabilities: Numbers, weights: Numbers | None
) -> Diagnostic | None:
    """Return that the mean probability of a label differs from its frequency, by the largest cost.

    Tests are those of class totals. A label that all rows have, or none, is left out.

    Parameters
    ----------
    labels, probabilities: (N, K), independent labels and their calibrated probabilities.
    weights: (N,), with the effective number of rows as their sum; None if all are 1.
    """
    share, p = (np.average(of, axis=0, weights=weights) for of in (labels, probabilities))
    p = np.where((share > 0) & (share < 1), p, share)
    costs = _total_costs(share, p, len(labels) if weights is None else float(weights.sum()))
    worst = int(np.argmax(costs))
    if costs[worst] < TOTALS_LOSS:
        return None
    numbers = {"label": float(worst), "mean": float(p[worst]), "frequency": float(share[worst])}
    return Diagnostic("label totals", numbers)


def _label_text(item: Diagnostic, names: Sequence[str] | None) -> str:
    values = item.values
    if item.kind != "label totals":
        score, _ = item.kind.split(" above ")
        return (
            f"{_NAMES[score]} of labels on new rows is about {values['value']:.3g}, "
            f"{values['identity']:.3g} without a map: fit more rows or a map of fewer numbers, or "
            "keep the probabilities"
        )
    k = int(values["label"])
    return (
        f"label {k if names is None else names[k]} has a mean probability of {values['mean']:.3g} "
        f"and a frequency of {values['frequency']:.3g}: fit platt, which moves each label"
    )


def _total_costs(share: Numbers, p: Numbers, effective: float) -> Numbers:
    """Return the NLL that equal totals would save, (K,), 0 where they may differ by chance."""
    n, mean = share * effective, p * effective
    tails = np.minimum(
        scipy.special.pdtr(np.floor(n), mean), scipy.special.gammainc(np.maximum(n, 1e-12), mean)
    )
    costs = scipy.special.kl_div(share, p) + scipy.special.kl_div(1 - share, 1 - p)
    return np.where(2 * tails * len(share) < TOTALS_LEVEL, costs, 0.0)


def _column_scale(z: Floats) -> Diagnostic | None:
    """Return that one column of three or more is on a much larger scale than the others."""
    if z.shape[1] < 3:
        return None
    finite = np.isfinite(z)
    counts = np.maximum(finite.sum(axis=0), 1)
    values = np.where(finite, z, 0.0)
    deviations = np.sqrt(
        np.maximum(np.square(values).sum(axis=0) / counts - (values.sum(axis=0) / counts) ** 2, 0)
    )
    column = int(np.argmax(deviations))
    others = float(np.median(np.delete(deviations, column)))
    if others == 0 or deviations[column] < _SCALE_RATIO * others:
        return None
    return Diagnostic(
        "column scale", {"class": float(column), "ratio": deviations[column] / others}
    )


_NAMES = {"nll": "the NLL", "brier": "the Brier score", "error": "the error"}
_REFERENCES = {
    "identity": ("without a map", "fit auto, which may keep the probabilities"),
    "temperature": ("by temperature scaling", "fit temperature or auto"),
}


def diagnostic_text(item: Diagnostic, problem: Problem, names: Sequence[str] | None = None) -> str:
    """Return the warning of a diagnostic, with the next step.

    Parameters
    ----------
    names: of the classes, if they are known.
    """
    if problem.labels.ndim == 2:
        return _label_text(item, names)
    values, kind = item.values, item.kind
    k = int(values.get("class", -1))
    name = str(k) if names is None else names[k]
    other = "fit by nll" if problem.objective.name != "nll" else ""
    if kind == "class totals":
        return (
            f"class {name} has a mean probability of {values['mean']:.3g} and a frequency of "
            f"{values['frequency']:.3g}: {other or 'fit vector, which moves each class'}"
        )
    if kind == "effective rows":
        advice = "" if problem.map.name in ("identity", "temperature") else "fit temperature, or "
        return (
            f"the weights leave {values['effective']:.0f} effective rows of {values['rows']:.0f}: "
            f"{advice}limit the largest weights"
        )
    if kind == "repeated rows":
        return (
            f"{values['rows']:.0f} rows are {values['distinct']:.0f} rows, repeated with their "
            "labels: fit each row once, or give auto groups= of equal rows"
        )
    if kind == "column scale":
        return (
            f"the logits of class {name} vary {values['ratio']:.0f} times as much as the others': "
            "check the scale of this column"
        )
    score, reference = kind.split(" above ")
    place, step = _REFERENCES[reference]
    return (
        f"{_NAMES[score]} on new rows is about {values['value']:.3g}, {values[reference]:.3g} "
        f"{place}: {other or step}"
    )
