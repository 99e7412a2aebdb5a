"""Usage of callers, in memory that all processes of a server share.

Each caller has a row of 64-bit floats: a mark of its name, the times until which its requests and
its rows are paid, and its running requests in each process. A process writes only its own count.
All processes write the times without a lock: if two do so within the same few nanoseconds, one
write is lost. A limit may then admit one request too many, never one too few.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

#: The environment variable that names the file if there are several processes.
USAGE_FILE = "RECALIB_LEDGER"

_ROWS = 8192
#: Rows to search from the position that the hash of the caller's name gives.
_MAX_PROBES = 16
#: Columns of a row; column 0 is the mark of the caller's name.
REQUESTS, ROWS, _RUNNING = 1, 2, 3


def file_size(processes: int) -> int:
    """Return the size in bytes of a file for `processes`; a new file is all zeros."""
    # Twice as many columns: a replaced process may still be running.
    return 8 * _ROWS * (_RUNNING + 2 * processes)


@lru_cache(maxsize=4096)
def _mark(name: str) -> float:
    return float(int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) + 1)


class SharedUsage:
    """Rows by callers' names: shared through `file`, or private to this process if it is None."""

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            self._file, memory = -1, memoryview(bytearray(file_size(1)))
        else:
            # Kept open: its locks belong to this process until it ends.
            self._file = os.open(file, os.O_RDWR)
            memory = memoryview(mmap.mmap(self._file, 0))
        self._cells: Any = memory.cast("d")
        self._width = len(self._cells) // _ROWS
        self._column = self._claim_column()

    def row(self, name: str) -> int:
        """Return the offset of a caller's row; an unused row may be given to another caller."""
        mark = _mark(name)
        first = int(mark) % _ROWS * self._width
        if self._cells[first] == mark:
            return first
        candidates = [(int(mark) + step) % _ROWS * self._width for step in range(_MAX_PROBES)]
        self._lock(fcntl.LOCK_EX)
        try:
            # Another process may have added the row since the check above.
            row = next((row for row in candidates if self._cells[row] == mark), -1)
            if row < 0:
                # An empty row; or a row without running requests, unused for longest. The times
                # of a caller that only has a limit of concurrency are 0.
                row = min(
                    candidates,
                    key=lambda row: (
                        self._cells[row] != 0,
                        self.running(row) > 0,
                        max(self._cells[row + 1], self._cells[row + 2]),
                    ),
                )
                self._cells[row : row + self._width] = memoryview(bytearray(8 * self._width)).cast(
                    "d"
                )
                self._cells[row] = mark
            return row
        finally:
            self._lock(fcntl.LOCK_UN)

    def until(self, row: int, kind: int) -> float:
        """Return when `REQUESTS` or `ROWS` are paid for, by `time.monotonic`."""
        return float(self._cells[row + kind])

    def set_until(self, row: int, kind: int, until: float) -> None:
        self._cells[row + kind] = until

    def running(self, row: int) -> int:
        """Return the number of running requests in all processes."""
        return int(sum(self._cells[row + _RUNNING : row + self._width]))

    def add_running(self, row: int, count: int) -> None:
        """Add `count` running requests of this process; a negative count ends requests."""
        cell = row + self._column
        self._cells[cell] = max(0.0, self._cells[cell] + count)

    def _claim_column(self) -> int:
        """Return a column that no other process uses until this process ends."""
        for column in range(_RUNNING, self._width):
            try:
                if self._file >= 0:
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, column)
            except OSError:
                continue
            # The column may be of a killed process, whose requests ended with it.
            for row in range(_ROWS):
                self._cells[row * self._width + column] = 0.0
            return column
        raise RuntimeError(f"more processes than {self._width - _RUNNING} share {USAGE_FILE}")

    def _lock(self, operation: int) -> None:
        if self._file >= 0:
            fcntl.lockf(self._file, operation, 1, 0)
