"""Many files: rows a second, memory, and what workers cost: `python -m benchmarks.scale`.

Each measurement is a separate process. Processor time includes the worker processes; the time to
start a program and a cluster is measured by the same program on one small file, and subtracted.
Wall time includes the start of a cluster, and not that of the program. `--memory ROWS` measures a
stream of rows that are drawn as they are needed.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import recalib
import recalib.scale
from benchmarks.fitting import rows_like
from benchmarks.timing import Goal
from recalib.metrics.evaluate import StreamingEvaluation

__all__ = ["memory", "run"]

#: What the engine may cost, in processor time of the same work without it.
_MAX_ENGINE = 1.3
#: What memory may grow by from the shortest to the longest stream.
_MAX_MEMORY = 1.1
_BATCH = 100_000
_TASKS = ("evaluate", "apply", "fit temperature", "fit vector")
_CLUSTERS = ("none", "local:1", "local:2")


def _write(folder: Path, sizes: list[int], classes: int) -> None:
    """Write Parquet files with these numbers of rows."""
    logits, labels = rows_like(sum(sizes), classes, per_class=True)
    cuts = np.cumsum(sizes)[:-1]
    for index, (z, y) in enumerate(
        zip(np.split(logits, cuts), np.split(labels, cuts), strict=True)
    ):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(z.astype(np.float32).ravel()), classes)
        pq.write_table(pa.table({"logits": lists, "labels": y}), folder / f"{index:03d}.parquet")


def run(rows: int, classes: int, files: int) -> Iterator[Goal]:
    """Print rows a second and memory; yield the cost of the engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("even", "skewed", "start"):
            (folder / kind).mkdir()
        _write(folder / "even", [rows // files] * files, classes)
        small = rows // (2 * files)  # half of the rows are in one file
        _write(folder / "skewed", [rows - small * (files - 1), *[small] * (files - 1)], classes)
        _write(folder / "start", [1_000], classes)
        recalib.fit(*rows_like(1_000, classes), "vector").save(folder / "vector.calib")
        print(f"{rows:,} rows of {classes} classes in {files} files")
        print("task              cluster   files       rows/s   CPU s  rows/CPU s    MiB")
        for task in _TASKS:
            seconds = {}
            for cluster in _CLUSTERS:
                start = _measure(folder, "start", task, cluster)["cpu"]
                for kind in ("even", "skewed") if cluster == "local:2" else ("even",):
                    result = _measure(folder, kind, task, cluster)
                    cpu = max(1e-3, result["cpu"] - start)
                    seconds[cluster, kind] = cpu
                    print(
                        f"{task:18}{cluster:10}{kind:8}{rows / result['wall']:10,.0f}{cpu:8.1f}"
                        f"{rows / cpu:12,.0f}{result['megabytes']:7.0f}"
                    )
            ratio = seconds["local:1", "even"] / seconds["none", "even"]
            yield Goal(f"{task}: processor time with Dask", ratio, _MAX_ENGINE, at_most=True)


def _measure(folder: Path, kind: str, task: str, cluster: str) -> dict[str, float]:
    """Run a task in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scale", "--task", task, "--cluster", cluster]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [*command, "--folder", str(folder), "--kind", kind],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, **json.loads(result.stdout)}


def _work(folder: Path, kind: str, task: str, cluster: str) -> dict[str, float]:
    """Do a task here; the memory is that of the largest process."""
    source, place = folder / kind, None if cluster == "none" else cluster
    started = time.perf_counter()
    if task == "evaluate":
        recalib.scale.evaluate(source, cluster=place).finish()
    elif task == "apply":
        output = tempfile.mkdtemp(dir=folder)
        recalib.scale.apply(recalib.load(folder / "vector.calib"), source, output, cluster=place)
    else:
        recalib.scale.fit(source, task.removeprefix("fit "), cluster=place)
    wall = time.perf_counter() - started
    kilobytes = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {"wall": wall, "megabytes": kilobytes / 1024}


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
        goals = run(options.rows, options.classes, options.files)
    for goal in goals:
        print(goal, flush=True)


if __name__ == "__main__":
    _main()
