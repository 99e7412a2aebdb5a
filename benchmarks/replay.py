"""What a cluster saves in a replay: `python -m benchmarks.replay`.

The first pass of a replay reads and checks all columns, which any number of workers can do. The
rest is the monitor, one cohort after another, and the narrow columns that it needs. The bound of
the speed-up is that of Amdahl's law: the processor time of a replay over that of the rest. The
start of the cluster is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale import processor_seconds
from recalib.core.executors import Workers, open_workers
from recalib.drift.class_monitor import ClassMonitor
from recalib.replay import Log, ReplayOptions, replay

_FILES = 16
_DAYS = 30
#: Rows that are drawn at a time.
_BATCH = 10_000


def write_log(folder: Path, rows: int, classes: int) -> None:
    """Write a calibrated log in files of successive days.

    Parameters
    ----------
    classes: the length of `probabilities`; 0: the log has confidences only.
    """
    rng = np.random.default_rng(0)
    times = 1.7e9 + np.sort(rng.random(rows)) * _DAYS * 86_400
    for number, part in enumerate(np.array_split(times, _FILES)):
        batches = [
            _columns(rng, part[first : first + _BATCH], classes)
            for first in range(0, len(part), _BATCH)
        ]
        pq.write_table(pa.concat_tables(batches), folder / f"{number:02d}.parquet")


def _columns(rng: np.random.Generator, times: Any, classes: int) -> Any:
    rows = len(times)
    columns: dict[str, Any] = {"time": times, "label_time": times + rng.exponential(3_600, rows)}
    if not classes:
        confidence = rng.beta(5, 1.2, rows)
        columns |= {"confidence": confidence, "correct": rng.random(rows) < confidence}
        return pa.table(columns)
    p = rng.standard_gamma(np.full((rows, classes), 1 / classes)) + 1e-9
    p /= p.sum(axis=1, keepdims=True)
    confidence, predicted = p.max(axis=1), p.argmax(axis=1)
    correct = rng.random(rows) < confidence
    lists = pa.FixedSizeListArray.from_arrays(pa.array(p.astype(np.float32).ravel()), classes)
    columns |= {"confidence": confidence, "correct": correct, "probabilities": lists}
    return pa.table(columns | {"label": np.where(correct, predicted, (predicted + 1) % classes)})


class Seconds(NamedTuple):
    """Wall and processor time of a replay; that of its first pass and of the tests of classes here.

    The test of a class does not depend on the other classes, so processes could share the classes.
    """

    wall: float
    cpu: float
    survey: float
    classes: float


def measure(folder: Path, cluster: Workers | None, *, watch: bool) -> Seconds:
    """Replay a log; the processor time is that of this process and of the workers.

    Parameters
    ----------
    watch: monitor each class.
    """
    seconds = {"survey": 0.0, "add": 0.0}

    def timed(kind: type, name: str) -> Any:
        method = getattr(kind, name)

        def measured(*arguments: Any) -> Any:
            started = time.process_time()
            result = method(*arguments)
            seconds[name] += time.process_time() - started
            return result

        return patch.object(kind, name, measured)

    options = ReplayOptions(classes=("all",) if watch else ())
    with timed(Log, "survey"), timed(ClassMonitor, "add"):
        cpu, wall = processor_seconds(), time.perf_counter()
        replay(folder, options, cluster=cluster)
        wall, cpu = time.perf_counter() - wall, processor_seconds() - cpu
    return Seconds(wall, cpu, seconds["survey"], seconds["add"])


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--classes", default="0,100,1000", help="lengths of `probabilities`")
    parser.add_argument("--watch", action="store_true", help="monitor each class")
    parser.add_argument("--cluster", default="local:2")
    options = parser.parse_args()
    print(f"{options.rows:,} rows; {options.cluster}")
    print(
        "probabilities   first pass   tests of classes   speed-up at most   seconds   "
        "with the cluster   processor time with it"
    )
    with ExitStack() as stack:
        workers = stack.enter_context(open_workers(options.cluster))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for classes in map(int, options.classes.split(",")):
            place = folder / f"{classes}"
            place.mkdir()
            write_log(place, _FILES * 50, classes)
            measure(place, workers, watch=False)  # the workers import modules
            write_log(place, options.rows, classes)
            here = measure(place, None, watch=options.watch)
            there = measure(place, workers, watch=options.watch)
            shutil.rmtree(place)
            print(
                f"{classes:13,}{here.survey / here.cpu:13.0%}{here.classes / here.cpu:19.0%}"
                f"{here.cpu / (here.cpu - here.survey):19.2f}{here.wall:10.1f}{there.wall:19.1f}"
                f"{there.cpu / here.cpu:25.2f}"
            )


if __name__ == "__main__":
    _main()
