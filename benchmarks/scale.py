"""Many files: rows a second, memory, and what workers cost: `python -m benchmarks.scale`.

Each measurement is a separate process, which first does the same task on one small file, so that
the start of the program and of the cluster is not counted. Processor time is that of the program,
the scheduler and the workers. `--memory ROWS` measures a stream of rows that are drawn as they are
needed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import recalib
import recalib.scale
from benchmarks.fitting import rows_like
from benchmarks.timing import Goal
from recalib.core.executors import Workers, open_workers
from recalib.metrics.evaluate import StreamingEvaluation

#: What the engine may cost, in processor time of the same work without it.
_MAX_ENGINE = 1.3
#: What memory may grow by from the shortest to the longest stream.
_MAX_MEMORY = 1.1
_BATCH = 100_000
#: A fit is named by its map, and its objective if that is not nll.
_TASKS = (
    "evaluate", "apply", "fit temperature", "fit vector", "fit isotonic",
    "fit temperature sb_ece", "fit temperature classwise_scaled_nll",
)  # fmt: skip
_CLUSTERS = ("none", "local:1", "local:2")


def write_files(folder: Path, sizes: list[int], classes: int) -> None:
    """Write Parquet files with these numbers of rows."""
    logits, labels = rows_like(sum(sizes), classes, per_class=True)
    cuts = np.cumsum(sizes)[:-1]
    for index, (z, y) in enumerate(
        zip(np.split(logits, cuts), np.split(labels, cuts), strict=True)
    ):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(z.astype(np.float32).ravel()), classes)
        pq.write_table(pa.table({"logits": lists, "labels": y}), folder / f"{index:03d}.parquet")


def run(rows: int, classes: int, files: int, tasks: Sequence[str] = _TASKS) -> Iterator[Goal]:
    """Print rows a second and memory; yield the cost of the engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("even", "skewed", "start"):
            (folder / kind).mkdir()
        write_files(folder / "even", [rows // files] * files, classes)
        small = rows // (2 * files)  # half of the rows are in one file
        write_files(
            folder / "skewed", [rows - small * (files - 1), *[small] * (files - 1)], classes
        )
        write_files(folder / "start", [1_000], classes)
        recalib.fit(*rows_like(1_000, classes), "vector").save(folder / "vector.calib")
        print(f"{rows:,} rows of {classes} classes in {files} files")
        print(f"{'task':38}cluster   files       rows/s   CPU s  rows/CPU s    MiB")
        for task in tasks:
            seconds = {}
            for cluster in _CLUSTERS:
                for kind in ("even", "skewed") if cluster == "local:2" else ("even",):
                    result = _measure(folder, kind, task, cluster)
                    cpu = seconds[cluster, kind] = result["cpu"]
                    print(
                        f"{task:38}{cluster:10}{kind:8}{rows / result['wall']:10,.0f}{cpu:8.1f}"
                        f"{rows / cpu:12,.0f}{result['megabytes']:7.0f}"
                    )
            ratio = seconds["local:1", "even"] / seconds["none", "even"]
            yield Goal(f"{task}: processor time with Dask", ratio, _MAX_ENGINE, at_most=True)


def _measure(folder: Path, kind: str, task: str, cluster: str) -> dict[str, float]:
    """Run a task in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scale", "--task", task, "--cluster", cluster]
    result = subprocess.run(
        [*command, "--folder", str(folder), "--kind", kind],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    return dict(json.loads(result.stdout))


def _work(folder: Path, kind: str, task: str, cluster: str) -> dict[str, float]:
    """Do a task here; the memory is that of the largest process."""
    with open_workers(None if cluster == "none" else cluster) as workers:
        _do(folder, folder / "start", task, workers)
        before, started = processor_seconds(), time.perf_counter()
        _do(folder, folder / kind, task, workers)
        wall, cpu = time.perf_counter() - started, processor_seconds() - before
        megabytes = max(process.memory_info().rss for process in _processes()) / 2**20
    return {"wall": wall, "cpu": cpu, "megabytes": megabytes}


def _do(folder: Path, source: Path, task: str, cluster: Workers) -> None:
    if task == "evaluate":
        recalib.scale.evaluate(source, cluster=cluster).finish()
    elif task == "apply":
        output = tempfile.mkdtemp(dir=folder)
        recalib.scale.apply(recalib.load(folder / "vector.calib"), source, output, cluster=cluster)
    else:
        recalib.scale.fit(source, *task.split()[1:], cluster=cluster)


def _processes() -> list[psutil.Process]:
    """Return this process and those that it has started."""
    process = psutil.Process()
    return [process, *process.children(recursive=True)]


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has started."""
    times = [process.cpu_times() for process in _processes()]
    return float(sum(time.user + time.system for time in times))


def memory(largest: int) -> Iterator[Goal]:
    """Print the memory of streams of 10^5 rows to `largest`; yield how much it grows."""
    rng = np.random.default_rng(0)
    evaluation, rows, peaks = StreamingEvaluation(10), 0, []
    while rows < largest:
        logits = rng.normal(size=(_BATCH, 10)).astype(np.float32)
        evaluation.add(rng.integers(0, 10, _BATCH), logits=logits)
        rows += _BATCH
        if rows in (10**power for power in range(5, 12)):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            print(f"{rows:13,} rows: {peaks[-1]:.0f} MiB at most", flush=True)
    yield Goal("memory of a stream", peaks[-1] / peaks[0], _MAX_MEMORY, at_most=True)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--tasks", nargs="+", default=_TASKS, help="some of the tasks")
    parser.add_argument("--memory", type=int, metavar="ROWS", help="measure streams up to ROWS")
    for name in ("task", "cluster", "folder", "kind"):  # of one measurement
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        place: dict[str, Any] = {"kind": options.kind, "cluster": options.cluster}
        print(json.dumps(_work(Path(options.folder), task=options.task, **place)))
        return
    if options.memory:
        goals = memory(options.memory)
    else:
        goals = run(options.rows, options.classes, options.files, options.tasks)
    for goal in goals:
        print(goal, flush=True)


if __name__ == "__main__":
    _main()
