"""`python -m benchmarks.serving`: the same temperature scaling on several servers.

Each server answers one row of 10 classes as JSON, 32 rows of 1,000 as JSON, and as bytes, from one
process and from two. Debian's `wrk` sends requests to one server at a time, in turns. Modules:
`servers` and `contestants` (setup of the peers), `measuring`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.serving.champions import prepare
from benchmarks.serving.contestants import CONTESTANTS
from benchmarks.serving.measuring import CASES, CONNECTIONS, Measured, measure
from benchmarks.serving.report import goals
from benchmarks.timing import Goal

__all__ = ["measured_by_workers", "missing", "run"]


def run() -> list[Goal]:
    """Run a short measurement, for `make bench`."""
    if missing():
        print(f"serving: skipped, {missing()}")
        return []
    runs = measured_by_workers(list(CONTESTANTS), (1, 2), rounds=3, seconds=2)
    return [goal for workers, measured in runs.items() for goal in goals(measured, workers)]


def missing() -> str:
    """Return what must be installed by hand, or an empty string."""
    return "" if shutil.which("wrk") else "wrk is not installed (apt-get install wrk)"


def measured_by_workers(
    names: Sequence[str],
    workers: Sequence[int],
    *,
    rounds: int,
    seconds: int,
    connections: int = CONNECTIONS,
    cases: Sequence[str] = CASES,
) -> dict[int, Measured]:
    """Return all trials of the servers named, by number of workers."""
    with tempfile.TemporaryDirectory(prefix="recalib-serving-") as name:
        folder = Path(name)
        home, temperatures = prepare(folder)
        return {
            count: measure(
                names,
                home,
                temperatures,
                folder / f"{count}",
                workers=count,
                rounds=rounds,
                seconds=seconds,
                connections=connections,
                cases=cases,
            )
            for count in workers
        }
