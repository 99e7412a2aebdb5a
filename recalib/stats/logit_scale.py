"""The scale of logits: what they look like, and whether they are like those of the model before.

The spread of a row is the standard deviation of its logits. It does not depend on a constant that
is added to a row: logits and the logarithms of their probabilities have the same. A summary counts
rows by the logarithm of their spread, and has three numbers about labels; it is small.

Drift changes the upper quantiles of the spread by factors of 0.4 to 1.4, except where accuracy is
lost (`python -m tests.wrong_data_sets`). The limits of a refusal are outside: they find another
scale, not another distribution. Accuracy is compared by Cohen's kappa,
(accuracy - chance) / (1 - chance), where chance is the agreement of independent labels.

The constant of a row is the mean of its logits. Training does not see it, as it leaves the
probabilities as they are. So its means by predicted class, up to scale and shift, are like a
fingerprint of a network, which drift changes little.

Source: Cohen, A Coefficient of Agreement for Nominal Scales, 1960.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, probability_resemblance
from recalib.core.label_arrays import label_resemblance
from recalib.core.lazy_import import LazyModule
from recalib.stats.groups import group_counts, group_sums, row_chunks

optimize = LazyModule("scipy.optimize")

#: Bins of an octave: 9% each. Spreads outside of 2^-20 to 2^20 are in the outer bins.
_BINS, _MAX_OCTAVE = 8, 20
#: Quantiles of the spread; the lower ones depend on how many rows are difficult.
_LEVELS = (0.5, 0.75, 0.95)
#: Factors of all quantiles that are another scale, and of one that is worth a warning.
_SMALLEST, _LARGEST, _NOTABLE = math.log2(0.4), math.log2(1.7), math.log2(1.25)
#: Summaries of fewer rows say nothing.
_LEAST_ROWS = 30
#: The share of the earlier kappa that is chance, and that other columns must reach.
_CHANCE, _SAME = 0.1, 0.8
#: Standard errors of a difference of accuracies that is none.
_ERRORS = 5.0
#: Columns up to which their orders are compared: a matrix of counts has the square.
_MAX_CLASSES = 1000
#: Larger logits are as large as this: their squares do not overflow.
_LARGEST_LOGIT = 1e100

#: Constants are compared where their means by class vary clearly, by the F statistic, over at least
#: five classes; the least correlation of one network. Constants whose standard deviation, of that
#: of a row's logits, is below the first share are none; above the second they are some.
_CLEAR, _LEAST_CLASSES, _LEAST_CORRELATION = 10.0, 5, 0.5
_NO_CONSTANT, _CONSTANT = 1e-6, 0.01

Code = Literal["probabilities", "columns", "chance", "scale", "network", "quantiles"]


class Finding(msgspec.Struct, frozen=True):
    """A reason to doubt that rows are logits of the model."""

    code: Code
    text: str

    @property
    def refuses(self) -> bool:
        """Whether a version of these rows is promoted only with `force`."""
        return self.code != "quantiles"

    @property
    def warning(self) -> str:
        """The text, and what follows from it."""
        if self.refuses:
            return f"{self.text}; a version of these rows is promoted only with `force`"
        return self.text


class Constants(msgspec.Struct, frozen=True):
    """The constants of rows."""

    #: Rows by predicted class and the means of their constants, less that of the first row, (K,).
    rows: list[int]
    means: list[float]
    #: The standard deviation of all, as a share of that of a row's logits.
    size: float
    #: The F statistic of the means, (variance between classes) / (variance within).
    clarity: float

    def correlation(self, other: Constants) -> float | None:
        """Return the correlation of the means of two data sets, None if it says nothing."""
        sizes = sorted((self.size, other.size))
        if sizes[0] < _NO_CONSTANT and sizes[1] > _CONSTANT:
            return 0.0
        rows = np.array([self.rows, other.rows])
        weights = (rows / rows.sum(axis=1, keepdims=True)).min(axis=0)
        unclear = min(self.clarity, other.clarity) < _CLEAR or sizes[0] < _NO_CONSTANT
        if unclear or np.count_nonzero(weights) < _LEAST_CLASSES:
            return None
        between = np.cov(np.array([self.means, other.means]), aweights=weights)
        return float(between[0, 1] / np.sqrt(between[0, 0] * between[1, 1]))


class LogitScale(msgspec.Struct, frozen=True):
    """The summary of rows of logits; JSON has texts as keys."""

    #: Rows by floor(8 log2 s), where s is their spread.
    spreads: dict[int, int] = {}
    #: Why they look like probabilities; empty if they do not.
    resemblance: str = ""
    #: Rows with one class as their label; the accuracy of the largest logit, that of the columns in
    #: the order that agrees best, and that of chance.
    labelled: int = 0
    accuracy: float = 0.0
    best: float = 0.0
    chance: float = 0.0
    #: Whether they were refused when they came: then they are no history.
    refused: bool = False
    #: None if they say nothing about the network, as those of probabilities.
    constants: Constants | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.spreads.values())

    @property
    def quantiles(self) -> NDArray[np.float64]:
        """Quantiles of log2 of the spread at 0.5, 0.75 and 0.95, (3,)."""
        bins = np.array(sorted(self.spreads))
        counts = np.cumsum([0, *(self.spreads[b] for b in bins.tolist())])
        edges = np.array([bins[0], *(bins + 1)]) / _BINS
        return np.interp(np.array(_LEVELS) * counts[-1], counts, edges)

    def kappa(self, accuracy: float) -> float:
        """Return Cohen's kappa of an accuracy of these rows."""
        return (accuracy - self.chance) / max(1 - self.chance, 1e-9)


class ScaleSums:
    """Sums of rows, from which their summary follows.

    Parameters
    ----------
    classes: K.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._spreads: dict[int, int] = {}
        self._resemblance: str | None = None
        shape = (classes, classes) if classes <= _MAX_CLASSES else (3, classes)
        #: Rows by label and prediction; of many classes by label, by prediction, and if both agree.
        self._counts = np.zeros(shape, np.int64)
        #: Rows and sums of constants by predicted class; Σ constant², Σ spread²; the constant of
        #: the first row, which is subtracted, and the largest logit.
        self._constants, self._squares = np.zeros((2, classes)), np.zeros(2)
        self._first: float | None = None
        self._largest = -math.inf

    def add(self, logits: Floats, labels: NDArray[Any] | None, *, declared: bool = True) -> None:
        """Add rows.

        Parameters
        ----------
        logits: checked, (N, K).
        labels: (N,), or of independent labels (N, K); None if they are not known.
        declared: whether they were sent as logits, not as probabilities.
        """
        for rows in row_chunks(logits.shape):
            self._add(logits[rows], None if labels is None else labels[rows], declared)

    def _add(self, logits: Floats, labels: NDArray[Any] | None, declared: bool) -> None:
        is_multilabel = labels is not None and labels.ndim == 2
        if declared and self._resemblance != "":
            resemblance = label_resemblance if is_multilabel else probability_resemblance
            self._resemblance = resemblance(logits)
        bins, counts = np.unique(spread_bins(logits), return_counts=True)
        for bin, count in zip(bins.tolist(), counts.tolist(), strict=True):
            self._spreads[bin] = self._spreads.get(bin, 0) + count
        if declared and not is_multilabel and self._classes <= _MAX_CLASSES:
            self._add_constants(logits)
        if labels is None or is_multilabel:
            return
        labels, predicted, size = labels.astype(np.int64), logits.argmax(axis=1), self._classes
        if size <= _MAX_CLASSES:
            cells = group_counts(labels * size + predicted, size * size)
            self._counts += cells.reshape(size, size)
        else:
            for row, part in enumerate((labels, predicted, labels[labels == predicted])):
                self._counts[row] += group_counts(part, size)

    def _add_constants(self, logits: Floats) -> None:
        # The constant of masked rows is that of other classes.
        logits = logits[np.isfinite(logits).all(axis=1)]
        if not len(logits):
            return
        wide = np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT, dtype=np.float64)
        constants, predicted = wide.mean(axis=1), wide.argmax(axis=1)
        self._first = constants[0] if self._first is None else self._first
        constants -= self._first
        rows = [group_sums(predicted, values, self._classes) for values in (None, constants)]
        self._constants += rows
        self._squares += constants @ constants, wide.var(axis=1).sum()
        self._largest = max(self._largest, wide.max())

    def _finish_constants(self) -> Constants | None:
        rows, sums = self._constants
        n, classes = rows.sum(), np.count_nonzero(rows)
        # Logarithms of probabilities, and logits less the largest, have a constant of their own.
        if n <= max(_LEAST_ROWS, classes) or self._largest <= 0:
            return None
        means, mean = sums / np.maximum(rows, 1), sums.sum() / n
        total, between = self._squares[0] - n * mean**2, rows @ (means - mean) ** 2
        within = max(total - between, 1e-12 * self._squares[0], 1e-300) / (n - classes)
        size = math.sqrt(max(total, 0.0) / max(self._squares[1], 1e-300))
        clarity = between / max(classes - 1, 1) / within
        digits = [float(f"{x:.6g}") for x in (*means, size, min(clarity, 1e9))]
        return Constants(rows.astype(int).tolist(), digits[:-2], *digits[-2:])

    def finish(self) -> LogitScale:
        """Return the summary."""
        constants = self._finish_constants()
        scale = LogitScale(self._spreads, self._resemblance or "", constants=constants)
        counts = self._counts
        if self._classes > _MAX_CLASSES:
            by_label, by_class, right = counts.astype(np.float64)
            accuracy = best = right.sum()
        else:
            by_label, by_class = counts.sum(axis=1), counts.sum(axis=0)
            accuracy, best = np.trace(counts), counts[optimize.linear_sum_assignment(-counts)].sum()
        labelled = int(by_label.sum())
        if not labelled:
            return scale
        chance = float(by_label @ by_class.astype(np.float64)) / labelled**2
        return msgspec.structs.replace(
            scale,
            labelled=labelled,
            accuracy=float(accuracy) / labelled,
            best=float(best) / labelled,
            chance=chance,
        )


def spread_bins(logits: Floats) -> NDArray[np.int64]:
    """Return the bin of the spread of each row, (N,); masked classes do not count."""
    finite = np.isfinite(logits)
    wide = np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT, dtype=np.float64)
    spread = wide.std(axis=1) if finite.all() else wide.std(axis=1, where=finite)
    octaves = np.log2(np.clip(spread, 2.0**-_MAX_OCTAVE, 2.0**_MAX_OCTAVE))
    return np.floor(_BINS * octaves).astype(np.int64)


def scale_of(
    logits: Floats, labels: NDArray[Any] | None = None, *, declared: bool = True
) -> LogitScale:
    """Return the summary of rows; the parameters are those of `ScaleSums.add`."""
    sums = ScaleSums(logits.shape[1])
    sums.add(logits, labels, declared=declared)
    return sums.finish()


def compare_scales(scale: LogitScale, history: Sequence[LogitScale]) -> list[Finding]:
    """Return the reasons to doubt that rows are logits of a model, the most serious first.

    Parameters
    ----------
    scale: of the rows.
    history: of earlier data sets of the model, and of its live traffic; empty for a first data set.
    """
    findings = []
    if scale.resemblance:
        findings.append(Finding("probabilities", f"sent as logits, but {scale.resemblance}"))
    labelled = [item for item in history if item.labelled >= _LEAST_ROWS]
    if scale.labelled >= _LEAST_ROWS and labelled:
        earlier = float(np.median([item.kappa(item.accuracy) for item in labelled]))
        least = min(item.labelled for item in labelled)
        findings += _compare_accuracy(scale, earlier, least)
    spreads = [item.quantiles for item in history if item.rows >= _LEAST_ROWS]
    if scale.rows >= _LEAST_ROWS and spreads:
        findings += _compare_spread(scale.quantiles, np.array(spreads))
    if not any(finding.refuses for finding in findings):
        findings = _compare_constants(scale, history) + findings
    return findings


def _compare_accuracy(scale: LogitScale, earlier: float, rows: int) -> list[Finding]:
    """Return what is wrong with labels; `earlier` is kappa of at least `rows` rows."""
    n, kappa = scale.labelled, scale.kappa(scale.accuracy)
    error = 1 / (2 * math.sqrt(n) * max(1 - scale.chance, 1e-9))
    known = 1 / (2 * math.sqrt(rows) * max(1 - scale.chance, 1e-9))
    same = _SAME * earlier
    difference = _ERRORS * math.sqrt((scale.best + scale.accuracy) / n)
    if kappa < same <= scale.kappa(scale.best) and scale.best - scale.accuracy > difference:
        text = (
            f"the labels agree with {scale.best:.0%} of the predictions if the classes are put in "
            f"another order, with {scale.accuracy:.0%} in this one"
        )
        return [Finding("columns", text)]
    is_chance = kappa < max(_CHANCE * earlier, 2 * error)
    if is_chance and earlier - kappa > _ERRORS * math.hypot(error, known):
        text = (
            f"accuracy is {scale.accuracy:.1%}, where labels without relation to the logits agree "
            f"with {scale.chance:.1%}; kappa was {earlier:.2f} before and is {kappa:.2f}"
        )
        return [Finding("chance", text)]
    return []


def _compare_constants(scale: LogitScale, history: Sequence[LogitScale]) -> list[Finding]:
    """Return whether constants are unlike those of each earlier data set."""
    own = scale.constants
    before = [item.constants for item in history if item.constants is not None]
    if own is None or not before:
        return []
    all_values = [own.correlation(item) for item in before if len(item.rows) == len(own.rows)]
    values = [value for value in all_values if value is not None]
    if not values or max(values) >= _LEAST_CORRELATION:
        return []
    text = (
        "these look like logits of another network, or less another constant: their means by "
        f"predicted class have a correlation of {max(values):.2f} with those of earlier data sets"
    )
    return [Finding("network", text)]


def _compare_spread(quantiles: NDArray[np.float64], before: NDArray[np.float64]) -> list[Finding]:
    """Return whether quantiles (3,) are outside of those (H, 3) of the history."""
    shift = quantiles - np.clip(quantiles, before.min(axis=0), before.max(axis=0))
    if np.abs(shift).max() <= _NOTABLE:
        return []
    factors = ", ".join(f"{2**x:.3g}" for x in shift)
    text = (
        f"the spread of the logits of a row is {factors} times that of the model's earlier data "
        "sets and traffic (median, 75%, 95%)"
    )
    is_other_scale = shift.min() > _LARGEST or shift.max() < _SMALLEST
    return [Finding("scale" if is_other_scale else "quantiles", text)]
