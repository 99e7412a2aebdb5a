"""Findings of a report: warnings about the data and the fitted calibrators.

Legend: K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.files import LabelledData
from recalib.fitting.comparison import Comparison
from recalib.metrics import Estimate, Predictions

__all__ = ["Evidence", "findings"]

#: What is called a difference happens by chance in one of a thousand pairs of like files.
_SURE = 1e-3
#: Fewer rows than these tell little of a calibration error of a few percent.
_FEW_ROWS = 500
#: Cells of a χ² test are merged until they hold at least this many rows, by the usual rule.
_FEWEST_EXPECTED = 5
#: How many classes a sentence names.
_NAMED = 5


@dataclass(frozen=True)
class Evidence:
    """The data of the findings."""

    validation: LabelledData
    test: LabelledData
    #: Whether both are the same file.
    same_file: bool
    comparison: Comparison
    #: On the test rows, before and after the recommended calibrator.
    before: Predictions
    after: Predictions
    metrics_after: dict[str, Estimate]
    #: The name of each class.
    name_of: Callable[[int], str]


def findings(evidence: Evidence) -> list[str]:
    """Return one or two sentences for each finding."""
    return [
        *_about_the_files(evidence),
        *_about_rows(evidence),
        *_about_classes(evidence),
        *_about_the_fit(evidence),
    ]


def _about_the_files(evidence: Evidence) -> Iterator[str]:
    if evidence.same_file:
        yield (
            "Both files are the same: the calibrator was fitted to the rows that it is measured "
            "on, and every number here flatters it."
        )
        return
    shared = _shared_rows(evidence.validation.logits, evidence.test.logits)
    if shared > 0:
        yield (
            f"{shared:,} of {len(evidence.test.labels):,} test rows are in the validation file "
            "too, to the last digit: what is measured on them flatters the calibrator."
        )


def _about_rows(evidence: Evidence) -> Iterator[str]:
    classes = evidence.test.logits.shape[1]
    for name, data in (("validation", evidence.validation), ("test", evidence.test)):
        rows = len(data.labels)
        if rows < _FEW_ROWS:
            yield f"Only {_rows(rows, name)}: see how wide the intervals are."
    if len(evidence.validation.labels) < classes:
        yield (
            f"{_rows(len(evidence.validation.labels), 'validation')} for {classes:,} classes: "
            "nothing can be said of single classes."
        )
    one, other = (
        data.logits.argmax(axis=1) == data.labels for data in (evidence.validation, evidence.test)
    )
    if _differ(one, other):
        yield (
            f"The classifier is right in {one.mean():.1%} of validation rows and {other.mean():.1%}"
            " of test rows, more than chance explains: the files are not of one kind, or one was "
            "trained on."
        )


def _about_classes(evidence: Evidence) -> Iterator[str]:
    classes = evidence.test.logits.shape[1]
    counts = [
        np.bincount(data.labels, minlength=classes) for data in (evidence.validation, evidence.test)
    ]
    for name, count in zip(("validation", "test"), counts, strict=True):
        absent = np.flatnonzero(count == 0)
        if 0 < len(absent) < classes:
            yield (
                f"{len(absent):,} of {classes:,} classes never occur in the {name} labels: "
                f"{_named(absent, evidence.name_of)}. What is said of these rests on no row."
            )
    if _shifted(*counts):
        shares = [count / count.sum() for count in counts]
        most = int(np.argmax(np.abs(shares[0] - shares[1])))
        yield (
            "Label shift: the classes are not equally frequent in both files, most of all "
            f"{evidence.name_of(most)}, {shares[0][most]:.1%} of validation and "
            f"{shares[1][most]:.1%} of test rows. A calibrator fitted to one mix of classes is off "
            "on another."
        )


def _about_the_fit(evidence: Evidence) -> Iterator[str]:
    fit = evidence.comparison.recommended.card.fit
    for text in fit.bounds_reached:
        yield f"A bound was reached: {text}."
    for text in fit.warnings:
        if "never occur" not in text and "too few" not in text:  # said above, in better words
            yield f"{text[:1].upper()}{text[1:]}."
    changed = int((evidence.before.predicted != evidence.after.predicted).sum())
    if changed > 0:
        yield f"The recommended calibrator changes the predicted class of {changed:,} test rows."
    ece = evidence.metrics_after["ece"]
    if ece.floor_high is not None and ece.value > ece.floor_high:
        identity = evidence.comparison.recommended.card.map == "identity"
        which = "As it is" if identity else "With the recommended calibrator"
        yield (
            f"{which}, an ECE of {ece.value:.2%} is left, more than the "
            f"{ece.floor_high:.2%} that chance alone would show in so many rows one time in "
            "twenty: some miscalibration remains."
        )


def _rows(count: int, of: str) -> str:
    return f"{count:,} {of} {'row' if count == 1 else 'rows'}"


def _shared_rows(one: NDArray[np.floating], other: NDArray[np.floating]) -> int:
    """Return the number of rows of `other` that are exactly equal to rows of `one`."""
    if one.dtype != other.dtype:
        return 0
    seen = {row.tobytes() for row in np.ascontiguousarray(one)}
    return sum(row.tobytes() in seen for row in np.ascontiguousarray(other))


def _differ(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> bool:
    """Return whether two shares differ significantly, by the pooled z test."""
    n, m = len(one), len(other)
    pooled = (one.sum() + other.sum()) / (n + m)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    if error == 0:
        return False
    z = abs(one.mean() - other.mean()) / error
    return bool(2 * scipy.special.ndtr(-z) < _SURE)


def _shifted(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Return whether counts (K,) have different shares: Pearson's χ² test of homogeneity.

    Classes too rare for it are taken together, from the rarest on.
    """
    table = np.stack([one, other]).astype(np.float64)
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
    return bool(scipy.special.chdtrc(table.shape[1] - 1, statistic) < _SURE)


def _named(classes: NDArray[np.intp], name_of: Callable[[int], str]) -> str:
    names = [name_of(int(k)) for k in classes[:_NAMED]]
    more = len(classes) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")
