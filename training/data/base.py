"""The interface of a data source.

A source is a dataclass of its options. `read` returns all its rows, checked: every row is readable,
and every label is an integer in [0, classes). `load` splits the rows further.
"""

from __future__ import annotations

import glob
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from training.data.split import Split

T = TypeVar("T")


@dataclass(frozen=True)
class Files:
    """Resolves file names relative to `folder`; if `confined`, refuses paths outside it."""

    folder: Path
    confined: bool = False

    def path(self, name: str, field: str) -> Path:
        """Return the file's path; `InputError` for `field` where it is absent or outside."""
        path = self._inside(name)
        if path is None or not path.is_file():
            raise self._absent("file", name, field)
        return path

    def paths(self, name: str, field: str) -> list[Path]:
        """Return a file, a folder, or in order all files of a pattern such as ``train-*.parquet``.

        Raises
        ------
        InputError: for `field`; nothing is there, or it is outside.
        """
        path = self._inside(name)
        if path is not None and path.exists():
            return [path]
        try:
            matches = sorted(self.folder.glob(name)) if glob.has_magic(name) else []
        except (NotImplementedError, ValueError):  # an absolute pattern, or an invalid one
            matches = []
        inside = [self._inside(str(match.relative_to(self.folder))) for match in matches]
        files = [match for match in inside if match is not None and match.is_file()]
        if not files or len(files) < len(inside):
            raise self._absent("file or folder", name, field)
        return files

    def _inside(self, name: str) -> Path | None:
        """Return the resolved path; None if it is invalid, or outside where confined."""
        folder = self.folder.resolve()
        try:
            path = (folder / name).resolve()
            path.exists()
        except (OSError, ValueError):  # a name too long, or with a NUL
            return None
        return None if self.confined and not path.is_relative_to(folder) else path

    def _absent(self, kind: str, name: str, field: str) -> InputError:
        # The error is the same for a missing file and for a file outside the folder, so that a
        # client cannot probe for files.
        place = f"a {kind} below the data folder" if self.confined else f"a readable {kind}"
        found = f"no such {kind}: {name!r}"
        return InputError(f"data.options.{field}", found=found, accepted=place)


@dataclass(frozen=True)
class Parts:
    """The rows of a source; `validation` and `test` are None where it has no such rows."""

    train: Split
    validation: Split | None
    test: Split | None
    classes: int
    facts: Mapping[str, int] = field(default_factory=dict)
    #: Names of the classes, if the source has them.
    names: tuple[str, ...] | None = None
    #: The label of void pixels; None if each pixel has a class.
    ignore_index: int | None = None


class Source(ABC):
    """Reads rows; a subclass is a dataclass of its options."""

    def of_splits(self, read: Callable[[str], T]) -> dict[str, T]:
        """Return what `read` gives for each split that an option of the same name has."""
        names = ("train", "validation", "test")
        return {name: read(name) for name in names if getattr(self, name) is not None}

    @abstractmethod
    def read(self, files: Files) -> Parts:
        """Return all rows, checked.

        Raises
        ------
        InputError: as `training.data.load`.
        """


def checked_labels(
    labels: Any, field: str, classes: int | None = None, ignore_index: int | None = None
) -> NDArray[np.int64]:
    """Return labels as int64; if `classes` is given, other labels than `ignore_index` are below it.

    Raises
    ------
    InputError: labels that are not integers, or a label out of range, with its index.
    """
    values = np.asarray(labels)
    if values.dtype.kind not in "iu":
        raise InputError(field, found=f"{values.dtype} values", accepted="integers, none missing")
    highest = np.inf if classes is None else classes - 1
    wrong = (values < 0) | (values > highest)
    if ignore_index is not None:
        wrong &= values != ignore_index
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        accepted = "0 or more" if classes is None else f"0 to {classes - 1}"
        if ignore_index is not None:
            accepted += f", or ignore_index {ignore_index}"
        elif values.ndim > 1:
            accepted += "; for void pixels, their label as options.ignore_index"
        at = "".join(f"[{index}]" for index in place)
        raise InputError(f"{field}{at}", found=f"{values[place]}", accepted=accepted)
    return values.astype(np.int64)
