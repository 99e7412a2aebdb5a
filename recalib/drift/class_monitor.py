"""Class-wise monitoring: whether each watched class occurs as often as its probability says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recalib.core.arrays import Numbers
from recalib.drift.class_rows import ClassRows
from recalib.drift.class_traffic import ClassTraffic, ClassWindow
from recalib.drift.monitor_state import State
from recalib.drift.row_groups import check_groups
from recalib.drift.silence import SilentClasses
from recalib.drift.sliding_window import SlidingWindow
from recalib.drift.timed_test import TimedTest
from recalib.errors import InputError
from recalib.stats.groups import group_sums

#: Classes in the evidence: those with the most.
_MAX_LISTED = 5
#: Inner ends of the ranges of probability, finer near 0 and 1.
_RANGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class ClassGap:
    """The evidence about one class."""

    #: The index of the class among those of the model.
    class_index: int
    #: Rows that count for it.
    labels: int
    #: The range of probabilities where frequency and probability differ most, measured in standard
    #: errors; its rows, and among them the mean probability and the frequency of the class.
    low: float
    high: float
    range_labels: int
    probability: float
    frequency: float
    log_evidence: float
    #: Whether E of this class has ever reached W/α: the split of α over the classes names it.
    rejected: bool


@dataclass(frozen=True)
class ClassEvidence:
    """The evidence about W watched classes together, and about those with the most evidence."""

    watched: int
    #: Labels of the class with the most.
    labels: int
    #: log of the mean of the classes' E, the threshold that it has to reach, and that of one class.
    log_evidence: float
    threshold: float
    class_threshold: float
    rejected: bool
    #: The end of the cohort in which the mean reached its threshold.
    rejected_time: float | None
    #: The logarithm of the mean CUSUM, and its threshold for the state `suspect`.
    suspicion: float
    suspicion_threshold: float
    worst: list[ClassGap]
    #: The watched classes that were predicted in the latest window.
    windows: list[ClassWindow]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


class ClassMonitor:
    """A calibration test for each of W watched classes.

    The null hypothesis of class k: given the rows before, P(y = k) is within `tolerance` of its
    probability p_k for each row that counts for it. The mean of the classes' E is an e-process too,
    since the mean of supermartingales is one; the alarm at 1/α is false with a probability of at
    most α over all classes and times. A class with E ≥ W/α raises the mean to 1/α, so the alarm
    comes never later than with a split of α over the classes. That split names the class.

    The state has constant size for each class that a row has counted for. It depends on the order
    of the rows, see `CalibrationTest`.

    Parameters
    ----------
    classes: the indices of the watched classes, different, at least one.
    suspicion: the threshold of the mean CUSUM for the state `suspect`.
    window_labels: size of the window of predicted classes, see `SlidingWindow`.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from recalib.drift import ClassMonitor, ClassRows
    >>> monitor = ClassMonitor([2], alpha=0.05, tolerance=0.02, suspicion=10.0)
    >>> p = csr_array(np.full((500, 1), 0.9))
    >>> rows = ClassRows(p, np.full(500, -1), np.arange(500.0))
    >>> monitor.add(0.0, 500.0, rows)  # class 2 never occurs
    >>> monitor.evidence().rejected
    True
    """

    def __init__(
        self,
        classes: Sequence[int],
        *,
        alpha: float,
        tolerance: float,
        suspicion: float,
        window_labels: int = 4_000,
    ) -> None:
        self.classes = tuple(classes)
        if not self.classes or len(set(self.classes)) < len(self.classes):
            found = f"{len(self.classes)} classes, {len(set(self.classes))} of them different"
            raise InputError("classes", found=found, accepted="different classes, at least one")
        self._alpha, self._tolerance = alpha, tolerance
        self._suspicion = math.log(suspicion)
        #: By position in `classes`: only classes that a row has counted for.
        self._tests: dict[int, TimedTest] = {}
        #: Number of rows, Σp and Σ[y = k] of each of these classes by range of p, (3, R).
        self._sums: dict[int, Numbers] = {}
        self._rejected_time: float | None = None
        self._window = SlidingWindow(ClassTraffic.empty(len(self.classes)), window_labels)

    @property
    def onset(self) -> float | None:
        """The time since which the evidence of the leading class has grown, None without labels."""
        return self._tests[self._leaders()[0]].onset if self._tests else None

    def add(self, start: float, end: float, rows: ClassRows) -> None:
        """Add the labelled rows of predictions made from `start` until before `end`, by time.

        Raises
        ------
        InputError: rows of another number of classes, or probabilities out of range.
        """
        if rows.probabilities.shape[1] != len(self.classes):
            found = f"rows of {rows.probabilities.shape[1]} classes"
            raise InputError("class_rows", found=found, accepted=f"{len(self.classes)} classes")
        by_class, groups = rows.probabilities.tocsc(), check_groups(rows.groups, len(rows))
        for k in np.flatnonzero(np.diff(by_class.indptr)).tolist():
            entries = slice(by_class.indptr[k], by_class.indptr[k + 1])
            index, p = by_class.indices[entries], by_class.data[entries]
            occurs = (rows.labels[index] == k).astype(np.float64)
            if k not in self._tests:
                self._tests[k] = self._new_test()
            self._tests[k].add(start, end, p, occurs, rows.times[index], groups[index])
            ranges = np.searchsorted(_RANGES, p, side="right")
            columns = None, p, occurs
            sums = np.stack([group_sums(ranges, values, len(_RANGES) + 1) for values in columns])
            self._sums[k] = self._sums.get(k, np.zeros(())) + sums
        # A test checks E after each row, the mean is checked after each cohort: where a class
        # rejects, the mean has reached its threshold at the same row.
        if self._rejected_time is None and (
            self._log_evidence() >= self._threshold
            or any(timed.test.rejected for timed in self._tests.values())
        ):
            self._rejected_time = end

    def add_traffic(self, start: float, end: float, traffic: ClassTraffic) -> None:
        """Add the predictions of a cohort, with and without labels: of each cohort, or of none.

        Raises
        ------
        InputError: traffic of another number of classes.
        """
        if len(traffic.labelled) != len(self.classes) + 1:
            found = f"traffic of {len(traffic.labelled) - 1} classes"
            raise InputError("class_traffic", found=found, accepted=f"{len(self.classes)} classes")
        self._window.add(start, end, traffic)

    def silent(self, oldest: float, names: Sequence[str] | None = None) -> SilentClasses:
        """Return the classes without useful labels among the predictions since `oldest`.

        Parameters
        ----------
        names: of all classes of the model; by default their indices.
        """
        watched = [_name(k, names) for k in self.classes]
        return self._window.since(oldest).silent_classes(watched)

    def evidence(self, oldest: float = -math.inf) -> ClassEvidence:
        """Return the evidence now, with windows of predictions since `oldest`."""
        return ClassEvidence(
            watched=len(self.classes),
            labels=max((timed.test.labels for timed in self._tests.values()), default=0),
            log_evidence=self._log_evidence(),
            threshold=self._threshold,
            class_threshold=self._threshold + math.log(len(self.classes)),
            rejected=self._rejected_time is not None,
            rejected_time=self._rejected_time,
            suspicion=self._log_mean(timed.test.suspicion for timed in self._tests.values()),
            suspicion_threshold=self._suspicion,
            worst=[self._gap(k) for k in self._leaders()[:_MAX_LISTED]],
            windows=self._window.since(oldest).windows(self.classes),
        )

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without the options."""
        return {
            "rejected_time": self._rejected_time,
            "window": self._window.state(),
            "classes": {
                str(k): {"sums": self._sums[k].tolist(), **timed.state()}
                for k, timed in self._tests.items()
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; classes and options must be the same."""
        self._rejected_time = state["rejected_time"]
        # States of earlier versions do not have it.
        self._window.restore(state.get("window", []), ClassTraffic.from_dict)
        self._tests, self._sums = {}, {}
        for name, saved in state["classes"].items():
            k = int(name)
            self._tests[k] = self._new_test()
            self._tests[k].restore(saved)
            self._sums[k] = np.array(saved["sums"], np.float64)

    @property
    def _threshold(self) -> float:
        return -math.log(self._alpha)

    def _new_test(self) -> TimedTest:
        return TimedTest(self._alpha / len(self.classes), self._tolerance)

    def _leaders(self) -> list[int]:
        """Return the classes with rows, by evidence: those that have rejected first."""
        tests = {k: timed.test for k, timed in self._tests.items()}
        return sorted(tests, key=lambda k: (not tests[k].rejected, -tests[k].log_evidence, k))

    def _log_evidence(self) -> float:
        return self._log_mean(timed.test.log_evidence for timed in self._tests.values())

    def _log_mean(self, logs: Iterable[float]) -> float:
        """Return the logarithm of the mean over all classes; a class without rows has E = 1."""
        values = np.zeros(len(self.classes))
        for k, value in zip(self._tests, logs, strict=True):
            values[k] = value
        return float(np.logaddexp.reduce(values)) - math.log(len(self.classes))

    def _gap(self, k: int) -> ClassGap:
        test, (rows, expected, count) = self._tests[k].test, self._sums[k]
        mean = expected / np.maximum(rows, 1)
        # Half a row keeps the variance above 0.
        scores = np.abs(count - expected) / np.sqrt(rows * mean * (1 - mean) + 0.5)
        worst = int(np.argmax(np.where(rows > 0, scores, -1.0)))
        ends = [0.0, *_RANGES, 1.0]
        return ClassGap(
            class_index=self.classes[k],
            labels=test.labels,
            low=ends[worst],
            high=ends[worst + 1],
            range_labels=int(rows[worst]),
            probability=float(mean[worst]),
            frequency=float(count[worst] / rows[worst]),
            log_evidence=test.log_evidence,
            rejected=test.rejected,
        )


def decide_class_state(
    evidence: ClassEvidence, tolerance: float, names: Sequence[str] | None = None
) -> tuple[State, str] | None:
    """Return the state that classes give and the reason for it, one sentence; None without one.

    Parameters
    ----------
    names: of all classes of the model; by default their indices.
    """
    worst = evidence.worst[0] if evidence.worst else None
    if evidence.rejected and worst is not None:
        rejected = [gap for gap in evidence.worst if gap.rejected]
        if rejected:
            subject = " and ".join(_name(gap.class_index, names) for gap in rejected[:3])
        else:
            subject = f"the classes together, most of all {_name(worst.class_index, names)},"
        return "stale", (
            f"the frequency of {subject} is not within {tolerance:.1%} of the probability: the"
            f" class-wise test rejected this on up to {evidence.labels:,} labels a class (log E"
            f" reached {evidence.threshold:.2f}); {_describe_gap(worst)}"
        )
    if worst is not None and evidence.suspicion >= evidence.suspicion_threshold:
        return "suspect", (
            f"recent labels look miscalibrated for {_name(worst.class_index, names)} (log suspicion"
            f" {evidence.suspicion:.2f}, level {evidence.suspicion_threshold:.2f}), but the"
            f" class-wise test does not confirm this yet (log E {evidence.log_evidence:.2f} of"
            f" {evidence.threshold:.2f})"
        )
    return None


def _describe_gap(gap: ClassGap) -> str:
    return (
        f"class {gap.class_index} occurs in {gap.frequency:.1%} of {gap.range_labels:,} labels"
        f" where its probability is {gap.probability:.1%} on average"
    )


def _name(class_index: int, names: Sequence[str] | None) -> str:
    return f"class {class_index}" + ("" if names is None else f" {names[class_index]!r:.60}")
