"""Reading a file in chunks needs the memory of a few chunks, for any file size.

Each format is read in a separate process, whose peak resident size (VmHWM, from the kernel, so
that no sampling can miss it) is compared before and after. RECALIB_MEMORY_MIB=2048 does the same
for 2 GB.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.files.examples import Array, column_table, list_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

_MIB = int(os.environ.get("RECALIB_MEMORY_MIB", "128"))
_CLASSES = 100
_BLOCK = 10_000  # rows written at a time: 4 MB

_READ = """
import re, sys
from pathlib import Path
import pyarrow.csv, pyarrow.parquet  # libraries, loaded when a file first needs them
import pandas  # pyarrow loads it, if it is installed
from recalib.files import open_data
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
before, rows = peak(), 0
with open_data(sys.argv[1]) as file:
    for chunk in file.chunks():
        rows += len(chunk.logits)
    print(rows, peak() - before)
"""


def _blocks() -> Iterator[tuple[Array, Array]]:
    random = np.random.default_rng(3)
    # Few digits, which deflate and CSV handle quickly.
    logits = random.normal(size=(_BLOCK, _CLASSES)).round(1).astype(np.float32)
    labels = random.integers(0, _CLASSES, _BLOCK)
    for _ in range((_MIB << 20) // logits.nbytes):
        yield logits, labels


def _rows() -> int:
    return sum(len(labels) for _, labels in _blocks())


def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    target = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(target, fields)
    return target.getvalue()


def _npz(path: Path, method: int) -> None:
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
        with archive.open("logits.npy", "w", force_zip64=True) as member:
            member.write(_header((_rows(), _CLASSES), "<f4"))
            for logits, _ in _blocks():
                member.write(logits.tobytes())
        with archive.open("labels.npy", "w") as member:
            member.write(_header((_rows(),), "<i8"))
            for _, labels in _blocks():
                member.write(labels.tobytes())


def _npz_stored(path: Path) -> None:
    _npz(path, zipfile.ZIP_STORED)


def _npz_deflated(path: Path) -> None:
    _npz(path, zipfile.ZIP_DEFLATED)


def _npy(path: Path) -> None:
    with path.open("wb") as file:
        file.write(_header((_rows(), _CLASSES), "<f4"))
        for logits, _ in _blocks():
            file.write(logits.tobytes())


def _tables(path: Path, table: Callable[..., Any], writer: Callable[..., Any], group: int) -> None:
    with writer(path, table(*next(_blocks())).schema) as target:
        waiting = []
        for logits, labels in _blocks():
            waiting.append(table(logits, labels))
            if len(waiting) == group:
                target.write_table(pa.concat_tables(waiting).combine_chunks())
                waiting.clear()
        for part in waiting:
            target.write_table(part)


def _parquet(path: Path) -> None:
    _tables(path, list_table, pq.ParquetWriter, 60)  # row groups of 240 MB


def _parquet_columns(path: Path) -> None:
    _tables(path, column_table, pq.ParquetWriter, 5)


def _arrow(path: Path) -> None:
    _tables(path, list_table, pa.ipc.new_stream, 1)


def _feather(path: Path) -> None:
    _tables(path, column_table, pa.ipc.new_file, 1)


def _csv(path: Path) -> None:
    with pa.csv.CSVWriter(path, column_table(*next(_blocks())).schema) as writer:
        for logits, labels in _blocks():
            writer.write_table(column_table(logits, labels))


def _safetensors(path: Path) -> None:
    size = _rows() * _CLASSES * 4
    header = (
        f'{{"logits":{{"dtype":"F32","shape":[{_rows()},{_CLASSES}],"data_offsets":[0,{size}]}}}}'
    ).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for logits, _ in _blocks():
            file.write(logits.tobytes())


@pytest.mark.parametrize(
    ("write", "suffix"),
    [
        (_npz_stored, ".npz"),
        (_npz_deflated, ".npz"),
        (_npy, ".npy"),
        (_parquet, ".parquet"),
        (_parquet_columns, ".parquet"),
        (_arrow, ".arrows"),
        (_feather, ".feather"),
        (_csv, ".csv"),
        (_safetensors, ".safetensors"),
    ],
)
def test_chunks_take_constant_memory(
    write: Callable[[Path], None], suffix: str, tmp_path: Path
) -> None:
    """At most 80 MiB beyond the imported libraries, all threads and caches of Arrow included."""
    path = tmp_path / f"data{suffix}"
    write(path)
    answer = subprocess.run(
        [sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True
    )
    path.unlink()
    rows, kib = map(int, answer.stdout.split())
    print(f"{write.__name__}: {rows} rows, {kib / 1024:.1f} MiB more")  # noqa: T201
    assert rows == _rows()
    assert kib < 80 * 1024
