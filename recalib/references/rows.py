"""The rows of a data set by reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from recalib.errors import CorruptError
from recalib.files import Chunk, DataSelection, Input, LabelledData, Task
from recalib.files.fragments import Fragment
from recalib.references.manifest import Manifest, ReferencedFile, check_content


class ReferencedRows:
    """All rows of a manifest, read in chunks, like those of a `recalib.files.DataFile`."""

    def __init__(
        self, manifest: Manifest, input: Input, task: Task, selection: DataSelection
    ) -> None:
        self._input, self._task, self._selection = input, task, selection
        self.manifest = manifest
        #: K.
        self.classes = manifest.classes
        #: Of all chunks.
        self.dtype: np.dtype[Any] = np.result_type(*(file.dtype for file in manifest.filled))

    def chunks(self, max_bytes: int = 8 << 20) -> Iterator[Chunk]:
        """Yield all rows in order, at most `max_bytes` of a file at a time.

        Raises
        ------
        InputError: a file cannot be read; the message names it.
        CorruptError: a file has another number of rows or classes than at the registration.
        """
        first_row = 0
        for file in self.manifest.filled:
            rows = 0
            fragment = Fragment(file.location, file.format, selection=self._selection)
            with fragment.open(self._input, self._task) as data:
                if data.classes != self.classes:
                    raise _change_error(file, f"{data.classes} classes instead of {self.classes}")
                for chunk in data.chunks(max_bytes):
                    rows += len(chunk.logits)
                    logits = chunk.logits.astype(self.dtype, copy=False)
                    yield replace(chunk, logits=logits, first_row=first_row + chunk.first_row)
            if rows != file.rows:
                raise _change_error(file, f"{rows} rows instead of {file.rows}")
            first_row += rows


def read_referenced(
    manifest: Manifest, input: Input, task: Task, selection: DataSelection
) -> LabelledData:
    """Return all rows of a manifest, whose contents are checked first.

    Raises
    ------
    CorruptError: a file has changed since the registration, also while it is read.
    InputError: a file cannot be read.
    UnavailableError: the file system cannot be reached.
    """
    rows = ReferencedRows(manifest, input, task, selection)
    logits = np.empty((manifest.rows, rows.classes), rows.dtype)
    labels: list[Any] = []  # every file has them: its registration checked that
    with unchanged(manifest):
        for file in manifest.filled:
            check_content(file)
        for chunk in rows.chunks():
            logits[chunk.first_row : chunk.first_row + len(chunk.logits)] = chunk.logits
            labels.append(chunk.labels)
    return LabelledData(logits, np.concatenate(labels))


@contextmanager
def unchanged(manifest: Manifest) -> Iterator[None]:
    """Check before and after the block that no file has changed, see `check_unchanged`.

    An error of the block that a change explains is replaced by the error that names the change.
    """
    manifest.check_unchanged()
    try:
        yield
    except Exception:
        manifest.check_unchanged()
        raise
    manifest.check_unchanged()


def _change_error(file: ReferencedFile, change: str) -> CorruptError:
    return CorruptError(f"{file.location} has changed: {change}")
