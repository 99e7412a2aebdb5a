"""Findings of a report: warnings about the data and the fitted calibrators.

Legend: K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.files import LabelledData
from recalib.fitting.comparison import Comparison
from recalib.fitting.row_digests import are_distinct, may_be_chance, row_digests
from recalib.fitting.thresholds import describe_thresholds
from recalib.metrics import Estimate
from recalib.metrics.headline import headline_error
from recalib.metrics.paired import Change
from recalib.reporting.html_report.accuracy_cost import AccuracyCost
from recalib.reporting.html_report.shift import UnderShift
from recalib.stats.groups import group_counts

#: Significance level: two files from the same distribution differ by chance in 0.1% of cases.
_MAX_P_VALUE = 1e-3
#: With fewer rows, a calibration error of a few percent is hardly measurable.
_FEW_ROWS = 500
#: Smallest expected count of a cell in the χ² test, by the usual rule; smaller cells are merged.
_FEWEST_EXPECTED = 5
#: Smallest calibration error that is not shown as 0.00%: probabilities of 1 leave less.
_SHOWN = 0.00005
#: Largest number of classes that a sentence names.
_MAX_NAMES = 5


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows of one source."""

    #: (K,): rows with each label.
    counts: NDArray[np.int64]
    #: Rows whose largest score is that of the label.
    correct: int

    @classmethod
    def of(cls, data: LabelledData) -> RowCounts:
        """Return the counts of rows in memory."""
        counts = group_counts(data.labels, data.logits.shape[1])
        return cls(counts, int((data.logits.argmax(axis=1) == data.labels).sum()))

    @property
    def rows(self) -> int:
        """N."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class Measurements:
    """The figures of a page."""

    comparison: Comparison
    validation: RowCounts
    test: RowCounts
    #: Test rows that are validation rows too.
    shared: int
    #: On all test rows, before and after the recommended calibrator.
    before: Mapping[str, Estimate]
    after: Mapping[str, Estimate]
    changes: dict[str, Change]
    #: Test rows whose predicted class the recommended calibrator changes.
    changed: int
    #: None if the comparison has maps of one kind only.
    cost: AccuracyCost | None = None
    #: The test set, then the shifted test sets; empty without shifted test sets.
    shift: Sequence[UnderShift] = ()
    #: The segments of the test rows, whose intervals hold together; empty without segments.
    segments: Sequence[UnderShift] = ()


def findings(
    measured: Measurements, *, same_file: bool, name_of: Callable[[int], str]
) -> list[str]:
    """Return one or two sentences for each finding.

    `same_file` is whether validation and test rows are the same; `name_of` has the name of each
    class.
    """
    return [
        *_about_the_files(measured, same_file),
        *_about_rows(measured),
        *_about_classes(measured, name_of),
        *_about_the_fit(measured),
    ]


def _about_the_files(measured: Measurements, same_file: bool) -> Iterator[str]:
    if same_file:
        yield (
            "Both files are the same: the calibrator was fitted to the rows that it is measured "
            "on, and every number here flatters it."
        )
        return
    test = measured.test
    if measured.shared > 0 and not may_be_chance(measured.shared, test.rows, len(test.counts)):
        yield (
            f"{measured.shared:,} of {test.rows:,} test rows are in the validation file "
            "too, to the last digit: what is measured on them flatters the calibrator."
        )


def _about_rows(measured: Measurements) -> Iterator[str]:
    validation, test = measured.validation, measured.test
    classes = len(test.counts)
    for name, data in (("validation", validation), ("test", test)):
        if data.rows < _FEW_ROWS:
            yield f"Only {_rows(data.rows, name)}: see how wide the intervals are."
    if validation.rows < classes:
        yield (
            f"{_rows(validation.rows, 'validation')} for {classes:,} classes: "
            "too few for results of single classes."
        )
    if _differ(validation, test):
        shares = [data.correct / data.rows for data in (validation, test)]
        yield (
            f"The classifier is right in {shares[0]:.1%} of validation rows and"
            f" {shares[1]:.1%} of test rows, more than chance explains: the files are not of one"
            " kind, or one was trained on."
        )


def _about_classes(measured: Measurements, name_of: Callable[[int], str]) -> Iterator[str]:
    counts = [measured.validation.counts, measured.test.counts]
    classes = len(counts[0])
    for name, count in zip(("validation", "test"), counts, strict=True):
        absent = np.flatnonzero(count == 0)
        if 0 < len(absent) < classes:
            yield (
                f"{len(absent):,} of {classes:,} classes never occur in the {name} labels: "
                f"{_join_names(absent, name_of)}. Results of these classes rest on no row."
            )
    if _is_shifted(*counts):
        shares = [count / count.sum() for count in counts]
        index = int(np.argmax(np.abs(shares[0] - shares[1])))
        yield (
            "Label shift: the classes are not equally frequent in both files, most of all "
            f"{name_of(index)}, {shares[0][index]:.1%} of validation and "
            f"{shares[1][index]:.1%} of test rows. A calibrator that is fitted to one mix of "
            "classes is miscalibrated on another."
        )


def _about_the_fit(measured: Measurements) -> Iterator[str]:
    fit = measured.comparison.recommended.card.fit
    for text in fit.bounds_reached:
        yield f"A bound was reached: {text}."
    for text in fit.warnings:
        if "never occur" not in text and "too few" not in text:  # covered by a finding above
            yield f"{text[:1].upper()}{text[1:]}."
    for text in measured.comparison.warnings:
        yield f"{text[:1].upper()}{text[1:]}."
    if measured.changed > 0:
        yield (
            f"The recommended calibrator changes the predicted class of {measured.changed:,} test "
            "rows."
        )
    recommended = measured.comparison.recommended
    thresholds = recommended.card.thresholds
    if thresholds is not None and thresholds.equal != thresholds.half:
        yield f"{describe_thresholds(recommended)}, on validation rows."
    yield from _about_remaining_errors(measured)


def _about_remaining_errors(measured: Measurements) -> Iterator[str]:
    identity = measured.comparison.recommended.card.map == "identity"
    subject = "As it is" if identity else "With the recommended calibrator"
    error = headline_error(measured.after)
    ece, classwise = (measured.after[name] for name in (error, "classwise_ce"))
    of = " of P(y = 1)" if error == "binary_ece" else ""
    if ece.floor_high is not None and ece.value > max(ece.floor_high, _SHOWN):
        yield (
            f"{subject}, an ECE{of} of {ece.value:.2%} is left, more than the "
            f"{ece.floor_high:.2%} that chance alone shows in this number of rows one time in "
            "twenty: some miscalibration remains."
        )
    if error == "binary_ece":  # that of the other class is the same
        return
    if classwise.low is not None and classwise.high is not None and classwise.low > 0:
        yield (
            f"{subject}, a class-wise calibration error of {classwise.value:.2%} is left, 95% "
            f"interval {classwise.low:.2%} to {classwise.high:.2%}: probabilities of some classes "
            "are too large or too small."
        )


def _rows(count: int, of: str) -> str:
    return f"{count:,} {of} {'row' if count == 1 else 'rows'}"


def count_shared_rows(first: Floats, second: Floats) -> int:
    """Return the number of rows of `second` that are exactly equal to rows of `first`.

    It is 0 for scores of few values, see `are_distinct`.
    """
    if first.dtype != second.dtype or not are_distinct(row_digests(second)):
        return 0
    rows = {row.tobytes() for row in np.ascontiguousarray(first)}
    return sum(row.tobytes() in rows for row in np.ascontiguousarray(second))


def _differ(first: RowCounts, second: RowCounts) -> bool:
    """Return whether the shares of correct rows differ significantly, by the pooled z test."""
    n, m = first.rows, second.rows
    pooled = (first.correct + second.correct) / (n + m)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    if error == 0:
        return False
    z = abs(first.correct / n - second.correct / m) / error
    return bool(2 * scipy.special.ndtr(-z) < _MAX_P_VALUE)


def _is_shifted(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Return whether counts (K,) have different shares: Pearson's χ² test of homogeneity.

    Classes too rare for the test are merged, starting with the rarest.
    """
    table = np.stack([first, second]).astype(np.float64)
    sizes = table.sum(axis=1)
    table = table[:, np.argsort(table.sum(axis=0))]
    least = table.sum(axis=0) * sizes.min() / sizes.sum()
    rare = int(np.searchsorted(least, _FEWEST_EXPECTED))
    if rare > 0:
        table = np.column_stack([table[:, :rare].sum(axis=1), table[:, rare:]])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return False
    expected = np.outer(sizes, table.sum(axis=0)) / sizes.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return bool(scipy.special.chdtrc(table.shape[1] - 1, statistic) < _MAX_P_VALUE)


def _join_names(classes: NDArray[np.intp], name_of: Callable[[int], str]) -> str:
    names = [name_of(int(k)) for k in classes[:_MAX_NAMES]]
    more = len(classes) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")
