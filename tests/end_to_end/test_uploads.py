"""Uploads to a real server: memory, disconnecting clients, leftovers."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from sqlalchemy import select

from recalib.registry import Registry, tables
from tests.end_to_end.programs import Programs, Server, half_an_upload, received, until
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz

pytestmark = pytest.mark.slow

_GIB = 2**30
_MIB = 2**20
#: With this variable set, the tests take ten minutes.
_IS_LARGE = bool(os.environ.get("RECALIB_LARGE_TESTS"))
_UPLOAD_BYTES = 2 * _GIB if _IS_LARGE else 400 * _MIB
_SMALL_UPLOADS = 10_000 if _IS_LARGE else 100
_CLASSES = 128


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Programs that the module shares."""
    programs = Programs(tmp_path_factory.mktemp("uploads"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def server(programs: Programs) -> Iterator[Server]:
    """A server started with an old and a new leftover."""
    temporary = programs.home / "blobs" / "temporary"
    temporary.mkdir(parents=True)
    for name in ("old", "new"):
        (temporary / name).write_bytes(b"")
    os.utime(temporary / "old", (0, 0))
    with programs.serve("--job-workers", 0) as server:
        server.model()
        yield server


def test_leftovers_of_killed_uploads_are_removed_after_a_day(
    server: Server, programs: Programs
) -> None:
    """A starting server removes them; it keeps files of uploads that may still run."""
    assert [path.name for path in programs.home.glob("blobs/temporary/*")] == ["new"]


def test_upload_aborted_by_its_client_leaves_nothing(server: Server, programs: Programs) -> None:
    """No temporary file remains, and the log has no traceback."""
    body = npz(*draw(200_000, 4, 2.0))
    with half_an_upload(server, body):
        until(lambda: received(programs) > 0, "a part of the upload")
    until(lambda: received(programs) == 0, "the file to go")
    assert server.ask("GET", "/v1/models/digits/datasets")["items"] == []
    assert "Traceback" not in server.log()


def test_upload_memory_is_constant(server: Server) -> None:
    """A chunked upload that is checked and measured takes less than 100 MB of memory."""
    server.model("wide", _CLASSES)
    # The first upload imports modules, which is not growth.
    small = npz(np.zeros((10, _CLASSES), np.float32), np.zeros(10, np.int64))
    server.ask("PUT", "/v1/models/wide/datasets/small", content=small, headers=NPZ)
    process = psutil.Process(server.pid)
    # Reset the peak to the current value.
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    before = process.memory_info().rss
    rows = _UPLOAD_BYTES // (4 * _CLASSES)
    path = "/v1/models/wide/datasets/large"
    answer = server.ask("PUT", path, content=_archive(rows), headers=NPZ)
    assert answer["rows"] == rows
    assert answer["size_bytes"] > _UPLOAD_BYTES
    assert _peak(server.pid) - before < 100 * _MIB


def test_small_uploads_leave_only_their_datasets(server: Server, programs: Programs) -> None:
    """Memory does not grow with their number."""
    server.model("many")
    rows, labels = draw(20, 4, 2.0)
    temporary = set(programs.home.glob("blobs/temporary/*"))

    def upload(number: int) -> None:
        content = npz(np.where(rows == rows[0, 0], number, rows), labels)
        path = f"/v1/models/many/datasets/data-{number}"
        assert server.client.put(path, content=content, headers=NPZ).status_code == 201

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upload, range(50)))
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        before = psutil.Process(server.pid).memory_info().rss
        list(threads.map(upload, range(50, 50 + _SMALL_UPLOADS)))
    assert _peak(server.pid) - before < 16 * _MIB
    registry = Registry(f"sqlite:///{programs.home / 'recalib.db'}", "memory://")
    with contextlib.closing(registry), registry.reading() as tx:
        names = list(tx.connection.scalars(select(tables.datasets.c.digest)))
    blobs = {path for path in programs.home.glob("blobs/*/*") if path.is_file()} - temporary
    assert sorted(path.name for path in blobs) == sorted(names)
    assert list(programs.temporary.iterdir()) == []


def _archive(rows: int) -> Iterator[bytes]:
    """Yield an npz of float32 logits (rows, 128) and labels in pieces, as NumPy writes it."""
    block, labels = np.random.default_rng(0).normal(size=(2048, _CLASSES)), np.arange(rows) % 100
    piece = block.astype("<f4").tobytes()
    size = rows * _CLASSES * 4
    pieces = [piece] * (size // len(piece)) + [piece[: size % len(piece)]]
    members = [
        ("logits.npy", [_npy_header("<f4", (rows, _CLASSES)), *pieces]),
        ("labels.npy", [_npy_header("<i8", (rows,)), labels.astype("<i8").tobytes()]),
    ]
    offset, directory = 0, b""
    for name, contents in members:
        head, entry = _zip_headers(name, contents, offset)
        directory += entry
        yield head
        yield from contents
        offset += len(head) + sum(len(content) for content in contents)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 2, 2, len(directory), offset, 0)
    yield directory + end


def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def _zip_headers(name: str, contents: list[bytes], offset: int) -> tuple[bytes, bytes]:
    """Return the local header and the directory entry of a stored member."""
    checksum = 0
    for content in contents:
        checksum = zlib.crc32(content, checksum)
    size, text = sum(len(content) for content in contents), name.encode()
    common = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, checksum, size, size, len(text), 0)
    local = struct.pack("<I", 0x04034B50) + common + text
    entry = struct.pack("<IH", 0x02014B50, 20) + common
    return local, entry + struct.pack("<HHHII", 0, 0, 0, 0, offset) + text


def _peak(pid: int) -> int:
    """Return the process's peak memory since the reset, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")
