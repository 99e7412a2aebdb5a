"""Measure the processor time of each test, child processes included: `make test-times`.

The program runs pytest with this module as a plugin. What no single test can be charged for (the
start of Python, collection, PostgreSQL) is the difference between the total and the sum.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FOLDER = "RECALIB_TESTS_TIMES"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


class _Meter:
    """The processor time of this process and its descendants since the last reading."""

    def __init__(self) -> None:
        self._last = _seconds_used()

    def read(self) -> float:
        """Return the seconds since the last reading."""
        before, self._last = self._last, _seconds_used()
        # A descendant may end without being waited for; its time is then lost.
        return max(0.0, self._last - before)


def _seconds_used() -> float:
    seconds = os.times()
    finished = seconds.user + seconds.system + seconds.children_user + seconds.children_system
    return finished + sum(_seconds_of(pid) for pid in _descendants(os.getpid()))


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def _seconds_of(pid: int) -> float:
    """Return the time of one process and of the children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / _TICKS_PER_SECOND


class _Plugin:
    """Append a line to a file of this process after each test."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.getpid()}.jsonl"
        self._meter = _Meter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Measure one test with its fixtures."""
        start = time.monotonic()
        self._meter.read()
        result = yield
        row = (item.nodeid, self._meter.read(), time.monotonic() - start)
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return result


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin where the program below asks for it."""
    if folder := os.environ.get(_FOLDER):
        config.pluginmanager.register(_Plugin(Path(folder)))


def main() -> int:
    """Run pytest with the arguments given and print a table; returns pytest's status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=2, help="of the folders in the table")
    parser.add_argument("--top", type=int, default=30, help="how many tests to list")
    options, arguments = parser.parse_known_args()
    # Daemons, such as PostgreSQL, become children of this process and count as well.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.processor_time", *arguments],
            env={**_environment(), _FOLDER: folder},
        )
        status = _wait_for(process.pid)
        wall = time.monotonic() - start
        rows = [
            json.loads(line)
            for file in Path(folder).iterdir()
            for line in file.read_text().splitlines()
        ]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    _print_table(rows, options.depth, options.top)
    total = usage.ru_utime + usage.ru_stime
    print(f"{total - sum(row[1] for row in rows):8.1f}          outside of tests")
    print(f"{total:8.1f} {wall:8.1f}  total: seconds of processor, seconds of wall time")
    return status


def _environment() -> dict[str, str]:
    """Return the environment; every program would otherwise compile what it imports again."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _wait_for(pid: int) -> int:
    """Reap every child until there is none; returns the exit status of `pid`."""
    status = 1
    while True:
        try:
            child, result = os.wait()
        except ChildProcessError:
            return status
        if child == pid:
            status = os.waitstatus_to_exitcode(result)


def _print_table(rows: list[list[Any]], depth: int, top: int) -> None:
    groups: dict[str, list[list[Any]]] = defaultdict(list)
    for row in rows:
        groups["/".join(row[0].partition("::")[0].split("/")[:depth])].append(row)
    print(f"{'cpu s':>8} {'wall s':>8} {'cases':>6}")
    for name, group in sorted(groups.items(), key=lambda pair: -sum(row[1] for row in pair[1])):
        cpu, wall = sum(row[1] for row in group), sum(row[2] for row in group)
        print(f"{cpu:8.1f} {wall:8.1f} {len(group):6}  {name}")
    print("\nThe most expensive:")
    for nodeid, cpu, wall in sorted(rows, key=lambda row: -row[1])[:top]:
        print(f"{cpu:8.1f} {wall:8.1f}  {nodeid}")


if __name__ == "__main__":
    sys.exit(main())
