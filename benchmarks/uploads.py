"""`python -m benchmarks.uploads`: the cost of the reader process per upload.

Surveys the same files in the reader process and in this process, and prints wall and processor
seconds, and the peak memory of the reader process. Without the transfer of the file.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from service.datasets.survey import survey_url
from service.reader_process import ReaderProcess

_FILES = {"small": (1_000, 10), "large": (50_000, 1_000)}
_REPEATS = 5


def main() -> None:
    """Print a row for each file and reader."""
    random = np.random.default_rng(0)
    print(f"{'file':16}{'MB':>6}{'where':>8}{'first s':>9}{'CPU s':>7}{'next s':>8}{'CPU s':>7}")
    readers = []
    with tempfile.TemporaryDirectory() as folder:
        for size, (rows, classes) in _FILES.items():
            logits = random.normal(size=(rows, classes)).astype(np.float32)
            labels = random.integers(0, classes, rows)
            for format, write in (("npz", _write_npz), ("parquet", _write_parquet)):
                path = Path(folder, f"{size}.{format}")
                write(path, logits, labels)
                arguments = {"url": path.as_uri(), "format": format}
                arguments |= {"input": "logits", "classes": classes}
                reader = ReaderProcess()
                readers.append(reader)

                def in_child(reader: Any = reader, arguments: Any = arguments) -> None:
                    reader.call(survey_url, seconds=600.0, **arguments)

                def in_process(arguments: Any = arguments) -> None:
                    survey_url(**arguments)

                megabytes = path.stat().st_size / 1e6
                for process, call in (("child", in_child), ("here", in_process)):
                    (first, first_cpu), (following, cpu) = _measure(call, reader)
                    print(
                        f"{path.name:16}{megabytes:6.1f}{process:>8}"
                        f"{first:9.3f}{first_cpu:7.3f}{following:8.3f}{cpu:7.3f}"
                    )
    for reader in readers:
        assert reader.pid is not None
        peak = Path(f"/proc/{reader.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        print(f"child: peak {int(peak) >> 10} MiB")
        reader.close()


def _write_npz(path: Path, logits: Any, labels: Any) -> None:
    np.savez(path, logits=logits, labels=labels)


def _write_parquet(path: Path, logits: Any, labels: Any) -> None:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), logits.shape[1])
    pq.write_table(pa.table({"logits": rows, "labels": labels}), path)


def _measure(call: Callable[[], None], reader: ReaderProcess) -> list[tuple[float, float]]:
    """Return wall and CPU seconds of the first call, and of the fastest later call."""
    costs = []
    for _ in range(1 + _REPEATS):
        cpu, started = _processor_seconds(reader), time.perf_counter()
        call()
        wall = time.perf_counter() - started
        costs.append((wall, _processor_seconds(reader) - cpu))
    return [costs[0], min(costs[1:])]


def _processor_seconds(reader: ReaderProcess) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in (os.getpid(), reader.pid) if pid]
    return sum(t.user + t.system for t in times)


if __name__ == "__main__":
    main()
