"""What callers have used, in memory that all processes of a server share.

A row of 64-bit floats for each caller: who it is, until when its requests and its rows are paid,
and how many of its requests each process has in work. Only a process itself writes how many; times
are written by whoever lets a request in, and of two processes that do so within the same few
nanoseconds one may be forgotten: a limit lets a request more through, and never one less.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["REQUESTS", "ROWS", "USAGE_FILE", "SharedUsage", "file_size"]

#: The variable that names the file, where there are several processes.
USAGE_FILE = "RECALIB_LEDGER"

_ROWS = 8192
#: How far a row may be from where its caller's name says.
_NEAR = 16
#: Where things are in a row; who it is of is first.
REQUESTS, ROWS, _RUNNING = 1, 2, 3


def file_size(processes: int) -> int:
    """Return the bytes of a file for so many processes; new, it is all zeros."""
    # Twice as many: one that was replaced may still be ending.
    return 8 * _ROWS * (_RUNNING + 2 * processes)


@lru_cache(maxsize=4096)
def _mark(name: str) -> float:
    return float(int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) + 1)


class SharedUsage:
    """Rows by callers' names, shared by `file`, or this process's own without one."""

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            self._file, memory = -1, memoryview(bytearray(file_size(1)))
        else:
            # Kept open: its locks are this process's for as long as it lives, and no longer.
            self._file = os.open(file, os.O_RDWR)
            memory = memoryview(mmap.mmap(self._file, 0))
        self._cells: Any = memory.cast("d")
        self._width = len(self._cells) // _ROWS
        self._own = self._claimed_column()

    def row(self, name: str) -> int:
        """Return where a caller's row begins; it may become another's once it is not used."""
        mark = _mark(name)
        first = int(mark) % _ROWS * self._width
        if self._cells[first] == mark:
            return first
        near = [(int(mark) + step) % _ROWS * self._width for step in range(_NEAR)]
        self._lock(fcntl.LOCK_EX)
        try:
            # Another process may have been here meanwhile.
            row = next((row for row in near if self._cells[row] == mark), -1)
            if row < 0:
                # An empty one, whose times are 0, or else the one that nobody has used for longest.
                row = min(near, key=lambda row: max(self._cells[row + 1], self._cells[row + 2]))
                self._cells[row : row + self._width] = memoryview(bytearray(8 * self._width)).cast(
                    "d"
                )
                self._cells[row] = mark
            return row
        finally:
            self._lock(fcntl.LOCK_UN)

    def until(self, row: int, what: int) -> float:
        """Return when `REQUESTS` or `ROWS` are paid for, by `time.monotonic`."""
        return float(self._cells[row + what])

    def set_until(self, row: int, what: int, when: float) -> None:
        self._cells[row + what] = when

    def running(self, row: int) -> int:
        """Return how many requests are in work, in all processes."""
        return int(sum(self._cells[row + _RUNNING : row + self._width]))

    def add_running(self, row: int, count: int) -> None:
        """Count requests of this process that begin, or less than 0 that end."""
        place = row + self._own
        self._cells[place] = max(0.0, self._cells[place] + count)

    def _claimed_column(self) -> int:
        """Return a column that is this process's for as long as it lives."""
        for column in range(_RUNNING, self._width):
            try:
                if self._file >= 0:
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, column)
            except OSError:
                continue
            # Of one that was killed, perhaps: what it had in work has ended with it.
            for row in range(_ROWS):
                self._cells[row * self._width + column] = 0.0
            return column
        raise RuntimeError(f"more processes than {self._width - _RUNNING} share {USAGE_FILE}")

    def _lock(self, how: int) -> None:
        if self._file >= 0:
            fcntl.lockf(self._file, how, 1, 0)
