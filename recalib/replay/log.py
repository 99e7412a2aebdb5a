"""Read a log of predictions from files, in time order and in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.core.lazy_import import LazyModule
from recalib.drift.class_rows import MAX_DENSE_CLASSES
from recalib.drift.target import Target, target_of
from recalib.errors import InputError
from recalib.files.fragments import Fragment
from recalib.replay.columns import (
    LogRows,
    check_schema,
    check_split_columns,
    rows_of,
    times_of,
)
from recalib.replay.log_files import LogFiles, LogSource
from recalib.replay.log_schema import LogSchema
from recalib.replay.probabilities import matrix_of
from recalib.replay.promises import Promises
from recalib.replay.survey import DELAY_CELLS, Survey, check_segments, delay_cells
from recalib.stats.groups import group_counts

pa = LazyModule("pyarrow")

_BATCH = 1 << 16
#: Rows with probabilities per read: 32 MB with 1,000 classes.
_WIDE_BATCH = 1 << 12
#: Rows sorted at a time, about 50 bytes each; a larger cohort is read as a whole.
_MAX_ROWS = 1 << 20
#: Probabilities of watched classes that are sorted with them, about 16 bytes each.
_MAX_ENTRIES = 1 << 24


class Log:
    """An open log; use it as a context manager.

    Columns: `time` of the prediction, `confidence` in [0, 1], `correct` (null without a
    label), and optionally `label_time`, `segment`, `group` and `probabilities`. Without
    `confidence`, the largest probability is the confidence, and without `correct`, `label` is read.
    Of two classes, `probabilities` may be P(y = 1). `LogSchema` says in which forms files may have
    them. A multilabel log has `time`,
    `probabilities` of the labels and `labels`, lists of zeros and ones, null where they are not
    known; a row is a prediction of one label that it draws. Other columns are not read.
    Rows may have any order, in a file and over files. A log that is nearly sorted by time is read
    about twice, any other log once more for each million rows, or for fewer after `watch`.

    Raises
    ------
    InputError: here or while reading: the file or a row is not valid; the error names the row.

    Parameters
    ----------
    source: a file (Parquet, CSV, TSV, JSON lines), a folder, a glob, a URL, several of these, or an
        open file.
    classes: number of probabilities per row; by default that of the first row.
    split_columns: further columns, for `batches`.
    with_labels: whether the log must have `probabilities` and `label`, for `watch`.
    multilabel: whether rows have any number of labels.
    class_names: names of the classes, which labels and columns of probabilities may have.
    promises: of the calibrator, for `LogRows.kept` where the log has `probabilities` and `label`.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from recalib.replay import Log
    >>> row = {"time": [0.0], "confidence": [0.9], "correct": [True]}
    >>> pq.write_table(pa.table(row), "log.parquet")
    >>> with Log("log.parquet") as log:
    ...     print(log.has_probabilities)
    False
    """

    def __init__(
        self,
        source: LogSource,
        classes: int | None = None,
        split_columns: Sequence[str] = (),
        *,
        with_labels: bool = False,
        multilabel: bool = False,
        class_names: Sequence[str] | None = None,
        promises: Promises | None = None,
    ) -> None:
        kind = {"with_labels": with_labels, "multilabel": multilabel}

        def check(schema: Any) -> list[str]:
            names = check_schema(schema, **kind, with_promises=bool(promises))
            check_split_columns(schema, split_columns)
            return [*names, *split_columns]

        #: The forms of `time` and `label_time` in the rows that were read, see `seconds_of`.
        self.times: dict[str, str] = {}
        self._files = LogFiles(
            source, lambda schema: LogSchema(schema, check, class_names, self.times)
        )
        self.schema = self._files.schema
        names = self._files.names
        self._names = names[: len(names) - len(split_columns)]
        #: K; None before the first row is read, and always None without probabilities.
        self.classes = classes
        self.split_columns = split_columns
        self.with_labels = with_labels
        self.multilabel = multilabel
        self.class_names = class_names
        self._watched: Sequence[int] | None = None
        has_rows = {"probabilities", "label"} <= set(self._names)
        self._promises = promises if has_rows and promises else None
        self._with_matrix = False
        self._max_rows = _MAX_ROWS

    @property
    def files(self) -> list[Fragment]:
        """The files that have rows, in their order.

        Raises
        ------
        InputError: the log is an open file.
        """
        return self._files.fragments()

    @property
    def has_probabilities(self) -> bool:
        """Whether the log has the column `probabilities`, of classes."""
        return "probabilities" in self._names and not self.multilabel

    @property
    def target(self) -> Target:
        """What is monitored: P(y = 1) if the log has the probabilities of two classes.

        It is known when K is.
        """
        return target_of(self.classes or 0) if self.has_probabilities else "top_label"

    @property
    def _checked(self) -> list[str]:
        """Columns to read after all rows are checked."""
        skipped: tuple[str, ...] = ()
        if "correct" in self._names and self._promises is None:
            skipped = ("label",)
            if "confidence" in self._names and self.target == "top_label":
                skipped = ("label", "probabilities")
        return [name for name in self._names if name not in skipped]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def check_unchanged(self) -> None:
        """Raise `InputError` if a file has changed since it was opened first."""
        self._files.check_unchanged()

    def watch(self, classes: Sequence[int]) -> None:
        """Return `LogRows.class_rows` of these class indices from `slices` from now on."""
        self._watched = classes
        self._max_rows = min(_MAX_ROWS, _MAX_ENTRIES // min(len(classes), MAX_DENSE_CLASSES))

    def keep_probabilities(self) -> None:
        """Return `LogRows.matrix` and `LogRows.label` from `slices` from now on."""
        self._with_matrix = True
        self._max_rows = min(self._max_rows, _MAX_ENTRIES // (self.classes or 1))

    def survey(self, step: Callable[[int], object] = lambda rows: None) -> Survey:
        """Read the whole log once; raise `InputError` for an invalid row.

        Parameters
        ----------
        step: called with the number of rows read, after each part.
        """
        rows = labelled = row_of_file = 0
        file = None
        end = -math.inf
        names: set[str] = set()
        delays = np.zeros(DELAY_CELLS, np.int64)
        groups = []
        for group in range(len(self._files.groups)):
            first, last = math.inf, -math.inf
            if self._files.groups[group].file != file:
                file, row_of_file = self._files.groups[group].file, 0
            for batch in self._batches(group, row_of_file, self._names):
                rows += len(batch.time)
                row_of_file += len(batch.time)
                known_delays = batch.delay[~np.isnan(batch.delay)]
                labelled += len(known_delays)
                first = min(first, float(batch.time.min()))
                last = max(last, float(batch.time.max()))
                end = max(end, float(np.max(batch.time + np.nan_to_num(batch.delay))))
                delays += group_counts(delay_cells(known_delays), len(delays))
                if batch.segment is not None:
                    names.update(batch.segment.tolist())
                    check_segments(names)
                step(rows)
            groups.append((first, last))
        if not rows:
            raise InputError("log", found="no rows", accepted="at least one prediction")
        filled = [(first, last) for first, last in groups if first <= last]
        start, last = min(first for first, _ in filled), max(last for _, last in filled)
        return Survey(rows, labelled, start, last, end, sorted(names), delays, groups)

    def counts(self, survey: Survey, cohort: float, cohorts: int) -> NDArray[np.int64]:
        """Return the number of predictions in each cohort of `cohort` seconds, (C,)."""
        counts = np.zeros(cohorts, np.int64)
        for group in range(len(self._files.groups)):
            for batch in self._raw(group, ["time"]):
                where = cohort_of(times_of(batch), survey.start, cohort, cohorts)
                counts += group_counts(where, cohorts)
        return counts

    def slices(
        self, survey: Survey, cohort: float, counts: NDArray[np.int64]
    ) -> Iterator[tuple[int, LogRows]]:
        """Yield number and rows of each cohort, by time; also cohorts without rows.

        Rows of one time are in a random order that does not depend on that of the file, which may
        depend on the outcomes.
        """
        number = 0
        while number < len(counts):
            cohorts = int(np.searchsorted(np.cumsum(counts[number:]), self._max_rows, side="right"))
            upto = number + max(cohorts, 1)
            rows = self._rows_between(survey, cohort, len(counts), number, upto)
            where = cohort_of(rows.time, survey.start, cohort, len(counts))
            order = np.argsort(where, kind="stable")
            ends = np.searchsorted(where[order], np.arange(number, upto + 1))
            for k in range(upto - number):
                part = rows.select(order[ends[k] : ends[k + 1]])
                yield number + k, part.select(_time_order(part))
            number = upto

    def probabilities(
        self, survey: Survey, start: float, end: float, stride: int
    ) -> tuple[Floats, LogRows]:
        """Return probabilities (P, K) and rows of predictions from `start` until before `end`.

        They are in the order of the file; only every `stride`-th row is returned.
        """
        matrices: list[Floats] = []
        parts: list[LogRows] = []
        passed = 0
        for group, ends in enumerate(survey.groups):
            if ends[1] < start or ends[0] >= end:
                continue
            for batch in self._raw(group, self._names):
                time = times_of(batch)
                inside = np.flatnonzero((time >= start) & (time < end))
                sampled = inside[-passed % stride :: stride]
                passed += len(inside)
                if len(sampled):
                    sample = batch.take(pa.array(sampled))
                    matrices.append(matrix_of(sample.column("probabilities"), 0, self.classes))
                    parts.append(rows_of(sample, 0, self.classes))
        return np.concatenate([np.zeros((0, self.classes or 0)), *matrices]), LogRows.concatenate(
            parts
        )

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[Any, LogRows]]:
        """Yield Arrow batches with further columns, and their rows, in the order of the file."""
        names = list(dict.fromkeys([*self._checked, *columns]))
        for group in range(len(self._files.groups)):
            for batch in self._raw(group, names):
                yield batch, rows_of(batch, 0, self.classes, multilabel=self.multilabel)

    def _rows_between(
        self, survey: Survey, cohort: float, cohorts: int, first: int, upto: int
    ) -> LogRows:
        parts = []
        for group, ends in enumerate(survey.groups):
            inside = cohort_of(np.array(ends), survey.start, cohort, cohorts)
            if ends[0] > ends[1] or inside[1] < first or inside[0] >= upto:
                continue
            is_wide = self._with_matrix or self._watched is not None
            names = self._names if is_wide else self._checked
            for batch in self._batches(group, 0, names):
                where = cohort_of(batch.time, survey.start, cohort, cohorts)
                parts.append(batch.select((where >= first) & (where < upto)))
        return LogRows.concatenate(parts)

    def _batches(self, group: int, first_row: int, names: list[str]) -> Iterator[LogRows]:
        for batch in self._raw(group, names, first_row):
            with self._files.named_errors(group):
                if batch.num_rows:
                    if self.classes is None and "probabilities" in names:
                        column = batch.column("probabilities")
                        matrix = matrix_of(column, first_row, None, multilabel=self.multilabel)
                        self.classes = matrix.shape[1]
                    yield rows_of(
                        batch,
                        first_row,
                        self.classes,
                        self._watched,
                        multilabel=self.multilabel,
                        promises=self._promises,
                        with_matrix=self._with_matrix,
                    )
            first_row += batch.num_rows

    def _raw(self, group: int, names: list[str], first_row: int = 0) -> Iterator[Any]:
        size = _WIDE_BATCH if "probabilities" in names else _BATCH
        yield from self._files.batches(group, names, size, first_row)


def cohort_of(
    time: NDArray[np.float64], start: float, cohort: float, cohorts: int
) -> NDArray[np.intp]:
    """Return the cohort of each time; rounding cannot exceed the last cohort."""
    return np.clip(np.floor((time - start) / cohort), 0, cohorts - 1).astype(np.intp)


def _time_order(rows: LogRows) -> NDArray[np.intp]:
    """Return an order by time that is random within one time, and the same for any file order."""
    order = np.lexsort((rows.delay, rows.correct, rows.confidence, rows.time))
    shuffled = order[np.random.default_rng(0).permutation(len(order))]
    return shuffled[np.argsort(rows.time[shuffled], kind="stable")]
