"""What a cluster could save in a replay: `python -m benchmarks.replay`.

A replay reads and checks the rows of a log, which any number of workers could do, and runs the
monitor on one cohort after another, which they could not. The bound of the speed-up is that of
Amdahl's law: the processor time of a replay over the time of all but the reading.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recalib.replay import Log, ReplayOptions, replay

__all__ = ["reading_and_all", "write_log"]

_FILES = 16
_DAYS = 30
#: Rows that are drawn at a time.
_BATCH = 10_000
#: The methods of a log that read all its rows.
_READERS = ("survey", "counts", "_between", "probabilities")


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


def reading_and_all(folder: Path, *, watch: bool) -> tuple[float, float]:
    """Return the processor time of the reading of a replay, and of all of it, in seconds.

    Parameters
    ----------
    watch: monitor each class.
    """
    seconds = [0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return method(*arguments, **options)
            finally:
                seconds[0] += time.process_time() - started

        return call

    with _replaced(timed):
        started = time.process_time()
        replay(folder, ReplayOptions(classes=("all",) if watch else ()))
        return seconds[0], time.process_time() - started


@contextmanager
def _replaced(timed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    methods = {name: timed(getattr(Log, name)) for name in _READERS}
    with patch.multiple(Log, **methods):
        yield


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--classes", default="0,100,1000", help="lengths of `probabilities`")
    parser.add_argument("--watch", action="store_true", help="monitor each class")
    options = parser.parse_args()
    print("probabilities   rows/CPU s   reading   speed-up by any number of workers, at most")
    for classes in map(int, options.classes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            write_log(Path(name), options.rows, classes)
            reading, total = reading_and_all(Path(name), watch=options.watch)
        bound = total / (total - reading)
        print(f"{classes:13,}{options.rows / total:13,.0f}{reading / total:10.0%}{bound:11.2f}")


if __name__ == "__main__":
    _main()
