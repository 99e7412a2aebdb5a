"""A log of predictions in a Parquet file, read in order of prediction time in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.errors import InputError, UnsupportedError
from recalib.files.base import translate_errors
from recalib.files.parquet import open_table
from recalib.lazy_import import LazyModule
from recalib.replay.columns import COLUMNS, Rows, check_schema, rows_of, times_of
from recalib.replay.probabilities import matrix_of

__all__ = ["Log", "Survey"]

pa = LazyModule("pyarrow")

_BATCH = 1 << 16
#: Rows with probabilities that are read at a time: 32 MB of 1,000 classes.
_WIDE_BATCH = 1 << 12
#: Rows that are sorted at a time, of some 50 bytes; a cohort of more comes whole.
_MOST_ROWS = 1 << 20
_MOST_SEGMENTS = 64
#: Delays are counted in cells that are so much wider than the one before, from a millisecond on.
_FINE, _SHORTEST, _CELLS = 1.01, 1e-3, 3_000


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over a log tells."""

    rows: int
    labelled: int
    #: First and last prediction time, and the last time of all, in seconds.
    start: float
    last: float
    end: float
    segments: list[str]
    #: Counts (3002,) of delays of labels by cell; the first is of 0.
    delays: NDArray[np.int64]
    #: First and last prediction time of each row group.
    groups: list[tuple[float, float]]

    def delay_quantile(self, share: float) -> float:
        """Return the seconds within which this share of labels came, to 1%."""
        total = int(self.delays.sum())
        if not total:
            return 0.0
        cell = int(np.searchsorted(np.cumsum(self.delays), share * total))
        return 0.0 if cell == 0 else _SHORTEST * _FINE ** (cell - 1)


class Log:
    """An open log; use it as a context manager.

    Columns: `time` of the prediction in seconds, `confidence` in [0, 1], `correct`, null where no
    label has come, and where known `label_time` in seconds, `segment` and `probabilities`, whose
    largest is the confidence where that is not there. Others are not read.
    Rows may stand in any order; a file that is nearly in order of time is read about twice, any
    other once more for each million rows.

    Raises
    ------
    InputError: here or while reading: a file that is not what it should be, with the row.

    Parameters
    ----------
    classes: how many probabilities a row must have; by default as many as the first.
    """

    def __init__(self, path: Path, classes: int | None = None) -> None:
        if path.suffix.lower() not in (".parquet", ".pq"):
            found = f"a name ending in {path.suffix!r}"
            raise UnsupportedError("log", found=found, accepted=".parquet")
        try:
            self._stream = path.open("rb")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no file name"
            raise InputError("log", found=f"{path}: {why}", accepted="a readable file") from error
        try:
            with translate_errors("parquet"):
                self._file = open_table(self._stream, COLUMNS)
                self._names = check_schema(self._file.schema_arrow)
        except BaseException:
            self._stream.close()
            raise
        #: K, None until a row has been read, or for good where there are no probabilities.
        self.classes = classes
        #: What is read once all rows have been checked.
        wide = "probabilities" in self._names and "confidence" in self._names
        self._checked = [one for one in self._names if not wide or one != "probabilities"]

    @property
    def has_probabilities(self) -> bool:
        """Whether rows say the probabilities of all classes."""
        return "probabilities" in self._names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def survey(self) -> Survey:
        """Read all of it once; raise `InputError` for whatever row is wrong."""
        rows = labelled = 0
        end = -math.inf
        names: set[str] = set()
        delays = np.zeros(_CELLS + 2, np.int64)
        groups = []
        for group in range(self._file.num_row_groups):
            first, last = math.inf, -math.inf
            for batch in self._batches(group, rows, self._names):
                rows += len(batch.time)
                known = batch.delay[~np.isnan(batch.delay)]
                labelled += len(known)
                first = min(first, float(batch.time.min()))
                last = max(last, float(batch.time.max()))
                end = max(end, float(np.max(batch.time + np.nan_to_num(batch.delay))))
                delays += np.bincount(_cells(known), minlength=len(delays))
                _add_names(names, batch)
            groups.append((first, last))
        if not rows:
            raise InputError("log", found="no rows", accepted="at least one prediction")
        filled = [one for one in groups if one[0] <= one[1]]
        start, last = min(one[0] for one in filled), max(one[1] for one in filled)
        return Survey(rows, labelled, start, last, end, sorted(names), delays, groups)

    def counts(self, survey: Survey, cohort: float, cohorts: int) -> NDArray[np.int64]:
        """Return how many predictions each cohort of so many seconds has, (C,)."""
        found = np.zeros(cohorts, np.int64)
        for group in range(self._file.num_row_groups):
            for batch in self._raw(group, ["time"]):
                where = cohort_of(times_of(batch), survey.start, cohort, cohorts)
                found += np.bincount(where, minlength=cohorts)
        return found

    def slices(
        self, survey: Survey, cohort: float, counts: NDArray[np.int64]
    ) -> Iterator[tuple[int, Rows]]:
        """Yield each cohort's number and its rows, by time; cohorts without rows too."""
        number = 0
        while number < len(counts):
            taken = int(np.searchsorted(np.cumsum(counts[number:]), _MOST_ROWS, side="right"))
            upto = number + max(taken, 1)
            rows = self._between(survey, cohort, len(counts), number, upto)
            where = cohort_of(rows.time, survey.start, cohort, len(counts))
            order = np.lexsort((rows.time, where))
            rows, where = rows.some(order), where[order]
            ends = np.searchsorted(where, np.arange(number, upto + 1))
            for k in range(upto - number):
                yield number + k, rows.some(np.arange(ends[k], ends[k + 1]))
            number = upto

    def probabilities(
        self, survey: Survey, start: float, end: float, every: int
    ) -> tuple[Floats, Rows]:
        """Return probabilities (P, K) and rows of predictions from `start` until before `end`.

        In the order of the file, and of them each `every`-th.
        """
        kept: list[Floats] = []
        parts: list[Rows] = []
        passed = 0
        for group, ends in enumerate(survey.groups):
            if ends[1] < start or ends[0] >= end:
                continue
            for batch in self._raw(group, self._names):
                time = times_of(batch)
                inside = np.flatnonzero((time >= start) & (time < end))
                chosen = inside[-passed % every :: every]
                passed += len(inside)
                if len(chosen):
                    some = batch.take(pa.array(chosen))
                    kept.append(matrix_of(some.column("probabilities"), 0, self.classes))
                    parts.append(rows_of(some, 0, self.classes))
        return np.concatenate([np.zeros((0, self.classes or 0)), *kept]), Rows.together(parts)

    def _between(self, survey: Survey, cohort: float, cohorts: int, first: int, upto: int) -> Rows:
        parts = []
        for group, ends in enumerate(survey.groups):
            inside = cohort_of(np.array(ends), survey.start, cohort, cohorts)
            if ends[0] > ends[1] or inside[1] < first or inside[0] >= upto:
                continue
            for batch in self._batches(group, 0, self._checked):
                where = cohort_of(batch.time, survey.start, cohort, cohorts)
                parts.append(batch.some((where >= first) & (where < upto)))
        return Rows.together(parts)

    def _batches(self, group: int, first_row: int, names: list[str]) -> Iterator[Rows]:
        for batch in self._raw(group, names):
            if batch.num_rows:
                if self.classes is None and "probabilities" in names:
                    self.classes = matrix_of(batch.column("probabilities"), first_row, None).shape[
                        1
                    ]
                yield rows_of(batch, first_row, self.classes)
            first_row += batch.num_rows

    def _raw(self, group: int, names: list[str]) -> Iterator[Any]:
        wide = "probabilities" in names
        with translate_errors("parquet"):
            for batch in self._file.iter_batches(
                batch_size=_WIDE_BATCH if wide else _BATCH,
                row_groups=[group],
                columns=names,
                use_threads=False,
            ):
                batch.validate(full=True)
                yield batch


def cohort_of(
    time: NDArray[np.float64], start: float, cohort: float, cohorts: int
) -> NDArray[np.intp]:
    """Return which cohort each time is in; what rounding puts behind the last is in the last."""
    return np.clip(np.floor((time - start) / cohort), 0, cohorts - 1).astype(np.intp)


def _cells(delays: NDArray[np.float64]) -> NDArray[np.intp]:
    with np.errstate(divide="ignore"):
        powers = np.log(delays / _SHORTEST) / math.log(_FINE)
    cells = 1 + np.clip(np.ceil(powers), 0, _CELLS)
    return np.where(delays > 0, cells, 0).astype(np.intp)


def _add_names(names: set[str], batch: Rows) -> None:
    if batch.segment is None:
        return
    names.update(batch.segment.tolist())
    if len(names) > _MOST_SEGMENTS:
        found = f"more than {_MOST_SEGMENTS} different"
        raise InputError("segment", found=found, accepted=f"at most {_MOST_SEGMENTS}")
