"""What a source of data promises.

A source is a dataclass of its options. `read` returns all rows that it has, checked: every row can
be read, every label is an integer in [0, classes). How rows are divided further is `load`'s affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from training.data.split import Split

__all__ = ["Files", "Parts", "Source", "checked_labels"]


@dataclass(frozen=True)
class Files:
    """Where files are: relative names start at `folder`; if `confined`, nothing may leave it."""

    folder: Path
    confined: bool = False

    def path(self, name: str, field: str) -> Path:
        """Return the file's path; `InputError` for `field` where it is absent or outside."""
        folder = self.folder.resolve()
        try:
            path = (folder / name).resolve()
            outside = self.confined and not path.is_relative_to(folder)
            # What is outside is told apart from what is absent by nobody who asks.
            if not outside and path.is_file():
                return path
        except (OSError, ValueError):  # a name too long, or with a NUL
            outside = False
        accepted = "a file below the data folder" if self.confined else "a readable file"
        raise InputError(
            f"data.options.{field}", found=f"no such file: {name!r}", accepted=accepted
        )


@dataclass(frozen=True)
class Parts:
    """What a source has. `validation` is None where it has no rows for that."""

    train: Split
    validation: Split | None
    test: Split
    classes: int
    facts: Mapping[str, int] = field(default_factory=dict)


class Source(ABC):
    """Reads rows; a subclass is a dataclass of its options."""

    @abstractmethod
    def read(self, files: Files) -> Parts:
        """Return everything, checked.

        Raises
        ------
        InputError: as `training.data.load`.
        """


def checked_labels(labels: Any, field: str, classes: int | None = None) -> NDArray[np.int64]:
    """Return labels as int64; `classes` K where they have to be below it.

    Raises
    ------
    InputError: anything but integers, or one out of range, with its place.
    """
    found = np.asarray(labels)
    if found.dtype.kind not in "iu":
        raise InputError(field, found=f"{found.dtype} values", accepted="integers, none missing")
    highest = np.inf if classes is None else classes - 1
    wrong = (found < 0) | (found > highest)
    if wrong.any():
        place = tuple(int(one) for one in np.argwhere(wrong)[0])
        accepted = "0 or more" if classes is None else f"0 to {classes - 1}"
        at = "".join(f"[{one}]" for one in place)
        raise InputError(f"{field}{at}", found=f"{found[place]}", accepted=accepted)
    return found.astype(np.int64)
