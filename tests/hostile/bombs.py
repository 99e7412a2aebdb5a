"""Small files that claim large resources.

`python -m tests.hostile.bombs [NAME ...]` reads them, by default all, with memory and time limits
for the whole process, and prints the result of each.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import resource
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recalib.files import open_data
from tests.files.bad_files import npy
from tests.files.examples import column_table, stream_of
from tests.hostile.parsers import PARSERS, refusal

__all__ = ["BOMBS", "MAX_MIB", "MAX_SIZE_FACTOR", "claimed_columns", "shared_pages"]

#: Memory limit of reading: a constant in MiB plus a multiple of the file size.
MAX_MIB, MAX_SIZE_FACTOR = 96, 16
#: Limits of the process: address space, and processor time for all files.
_LIMIT_BYTES, _LIMIT_SECONDS = 6 << 30, 240


def _zeros(rows: int, classes: int) -> bytes:
    header = npy(f"({rows}, {classes})")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("logits.npy", "w") as member:
            member.write(header)
            for _ in range(rows // 1000):
                member.write(bytes(4000 * classes))
        archive.writestr("labels.npy", npy(f"({rows},)", body=bytes(4 * rows)))
    return target.getvalue()


def _zip_in_a_zip() -> bytes:
    inner = _zeros(100_000, 100)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", inner)
    return target.getvalue()


def _overlapping_entries() -> bytes:
    """Return an archive whose directory has labels and logits at the same bytes."""
    content = _zeros(1000, 100)
    first = content.find(b"PK\x01\x02")
    second = content.find(b"PK\x01\x02", first + 4)
    changed = bytearray(content)
    changed[second + 42 : second + 46] = content[first + 42 : first + 46]  # where its header is
    return bytes(changed)


def _unpacks_to_more() -> bytes:
    """Return an archive whose directory and header claim 4 rows, with 100 MB of data."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("logits.npy", npy("(4, 4)") + bytes(100_000_000))
    content = bytearray(target.getvalue())
    at = content.find(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", len(npy("(4, 4)")) + 64)
    return bytes(content)


class _Buffer(bytearray):
    """A flatbuffer writer, front to back; offsets are filled in when they are known."""

    def table(self, fields: list[tuple[int, bytes | None]]) -> tuple[int, list[int]]:
        """Append a table; return its position and those of its fields. None is an offset."""
        values = [bytes(4) if value is None else value for _, value in fields]
        places, size = {}, 4
        for (slot, _), value in zip(fields, values, strict=True):
            size += -size % len(value)
            places[slot] = size
            size += len(value)
        size += -size % 4
        slots = [places.get(slot, 0) for slot in range(max(places, default=-1) + 1)]
        vtable = len(self)
        self += struct.pack("<HH", 4 + 2 * len(slots), size)
        self += b"".join(struct.pack("<H", place) for place in slots)
        self.align()
        start = len(self)
        self += struct.pack("<i", start - vtable) + bytes(size - 4)
        for (slot, _), value in zip(fields, values, strict=True):
            at = start + places[slot]
            self[at : at + len(value)] = value
        return start, [start + places[slot] for slot, _ in fields]

    def align(self) -> None:
        self += bytes(-len(self) % 8)

    def point(self, places: list[int]) -> None:
        """Point the offsets at `places` to the next appended object."""
        self.align()
        for place in places:
            self[place : place + 4] = struct.pack("<I", len(self) - place)

    def vector(self, count: int) -> list[int]:
        """Append a vector of offsets; return their positions."""
        self += struct.pack("<I", count)
        start = len(self)
        self += bytes(4 * count)
        return [start + 4 * i for i in range(count)]

    def text(self, value: bytes) -> None:
        self += struct.pack("<I", len(value)) + value + b"\0"


def _schema(top: int, below: int = 0, name: bytes = b"p0", pairs: int = 0) -> bytes:
    """Return an Arrow schema message: one field `top` times, with one child `below` times."""
    buffer = _Buffer(bytes(4))
    message, (_, _, header) = buffer.table([(0, struct.pack("<h", 4)), (1, b"\x01"), (2, None)])
    buffer[:4] = struct.pack("<I", message)
    buffer.align()
    schema, (fields,) = buffer.table([(1, None)])
    buffer[header : header + 4] = struct.pack("<I", schema - header)
    buffer.point([fields])
    places = buffer.vector(top)
    for count in [below] if not below else [below, 0]:
        kind, type_fields = (3, [(0, struct.pack("<h", 1))]) if not count else (13, [])
        slots: list[tuple[int, bytes | None]] = [
            (0, None),
            (2, bytes([kind])),
            (3, None),
            (5, None),
        ]
        buffer.align()
        field, (called, _, type_, children, *more) = buffer.table(
            slots + ([(6, None)] if pairs else [])
        )
        if places:
            offsets = field - np.array(places, np.uint32)
            buffer[places[0] : places[-1] + 4] = offsets.astype("<u4").tobytes()
        buffer.point([called])
        buffer.text(name)
        buffer.align()
        start, _ = buffer.table(type_fields)
        buffer[type_ : type_ + 4] = struct.pack("<I", start - type_)
        buffer.point([children])
        places = buffer.vector(count)
        if pairs:
            buffer.point(more)
            entries = buffer.vector(pairs)
            buffer.align()
            pair, texts = buffer.table([(0, None), (1, None)])
            for entry in entries:
                buffer[entry : entry + 4] = struct.pack("<I", pair - entry)
            buffer.point(texts)
            buffer.text(b"x" * 20)
    buffer.align()
    return struct.pack("<Ii", 0xFFFFFFFF, len(buffer)) + buffer + struct.pack("<Ii", 0xFFFFFFFF, 0)


def _shared_columns(rows: int = 100_000, classes: int = 2000) -> bytes:
    """Return columns that share their bytes: 400 kB claim 800 MB of numbers."""
    column = np.zeros((rows, 1), np.float32)
    names = [f"logit_{k}" for k in range(classes)]
    batch = pa.record_batch([pa.array(column[:, 0])] * classes, names=names)
    target = io.BytesIO()
    with pa.ipc.new_stream(target, batch.schema) as writer:
        writer.write_batch(batch)
    content = target.getvalue()
    start = batch.schema.serialize().size
    (length,) = struct.unpack("<i", content[start + 4 : start + 8])
    metadata = content[start + 8 : start + 8 + length]
    size = rows * 4  # a multiple of 64, so that there is no padding between columns
    pairs = metadata.index(struct.pack("<6q", 0, 0, 0, size, size, 0))
    shared = struct.pack("<4q", 0, 0, 0, size) * classes
    metadata = metadata[:pairs] + shared + metadata[pairs + len(shared) :]
    metadata = metadata.replace(struct.pack("<q", classes * size), struct.pack("<q", size), 1)
    body = content[start + 8 + length : start + 8 + length + size]
    return content[: start + 8] + metadata + body + struct.pack("<Ii", 0xFFFFFFFF, 0)


def _many_dictionaries() -> bytes:
    """Return a stream with a dictionary of 8 MB in 1 kB, fifty times."""
    texts = pa.array(["a" * (8 << 20)]).dictionary_encode()
    table = pa.table({"p0": pa.array([1.0]), "p1": pa.array([1.0]), "text": texts})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    content = stream_of(table, options=options)
    marks = [i for i in range(len(content)) if content.startswith(b"\xff" * 4, i) and i % 8 == 0]
    dictionary = content[marks[1] : marks[2]]
    return content[: marks[1]] + dictionary * 50 + content[marks[2] :]


def _parquet(table: Any, **options: Any) -> tuple[bytes, bytes]:
    """Return a Parquet file without its footer, and the footer."""
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    content = target.getvalue()
    length = int.from_bytes(content[-8:-4], "little")
    return content[: -8 - length], content[-8 - length : -8]


def _with_footer(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def shared_pages(rows: Any, groups: int) -> bytes:
    """Return a file whose footer repeats one row group `groups` times."""
    body, footer = _parquet(column_table(rows, None))
    # Field 4 of the footer is a list of one struct, before field 5 (metadata) or 6 (writer).
    at = footer.index(b"\x19\x1c\x19\x2c\x26")
    end = footer.index(b"\x19\x1c\x18\x0cARROW:schema")
    group = footer[at + 2 : end]
    count = bytes([0xFC, groups & 0x7F | 0x80, groups >> 7])
    return _with_footer(body, footer[:at] + b"\x19" + count + group * groups + footer[end:])


def claimed_columns(columns: int) -> bytes:
    """Return a footer of thirty bytes whose row group claims this many columns."""
    count = bytes([0xFC, columns & 0x7F | 0x80, columns >> 7 & 0x7F | 0x80, columns >> 14])
    root = b"\x19\x1c\x48\x04root\x15\x00\x00"
    return _with_footer(b"PAR1", b"\x15\x02" + root + b"\x16\x00\x19\x1c\x19" + count)


def _schema_in_a_footer() -> bytes:
    target = io.BytesIO()
    table = column_table(np.zeros((1, 2), np.float32), None)
    with pq.ParquetWriter(target, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        text = base64.b64encode(_schema(14, 100_000)).decode()
        writer.add_key_value_metadata({"ARROW:schema": text})
    return target.getvalue()


def _v2(**changed: Any) -> bytes:
    tensor = {"name": "logits", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], **changed}
    return b"\n" + json.dumps({"inputs": [tensor]}).encode()


_BIG = 10**2200

#: Name of the file: the parser, and the bytes.
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "npz: 40 MB of zeros": ("npz", lambda: _zeros(100_000, 100)),
    "npz: a zip in a zip": ("npz", _zip_in_a_zip),
    "npz: overlapping entries": ("npz", _overlapping_entries),
    "npz: unpacks to more": ("npz", _unpacks_to_more),
    "arrow: a field a million times": ("arrow", lambda: _schema(1_000_000)),
    "arrow: fields with the same children": ("arrow", lambda: _schema(14, 200_000)),
    "arrow: a long name": ("arrow", lambda: _schema(10_000, name=b"p" * 200_000)),
    "arrow: metadata of all fields": ("arrow", lambda: _schema(14, pairs=100_000)),
    "arrow: columns that share bytes": ("arrow", _shared_columns),
    "arrow: fifty dictionaries": ("arrow", _many_dictionaries),
    "parquet: claims columns": ("parquet", lambda: claimed_columns(900_000)),
    "parquet: groups that share pages": (
        "parquet",
        lambda: shared_pages(np.zeros((500_000, 2), np.float32), 5000),
    ),
    "parquet: an Arrow schema": ("parquet", _schema_in_a_footer),
    "replay: claims columns": ("replay", lambda: claimed_columns(900_000)),
    "csv: nothing but commas": ("csv", lambda: b"," * (4 << 20) + b"\n1,2\n"),
    "csv: half a million columns": (
        "csv",
        lambda: ",".join(f"p{k}" for k in range(500_000)).encode() + b"\n1\n",
    ),
    "csv: a quote that never ends": ("csv", lambda: b'p0,p1\n1,"2\n' + b"1,2\n" * 2_000_000),
    "csv: NUL": ("csv", lambda: b"p0,p1\n1,\0" + bytes(8_000_000)),
    "csv: one line": ("csv", lambda: b"p0,p1\n" + b"1" * 20_000_000),
    "csv: a long number": ("csv", lambda: b"p0,p1\n1," + b"9" * 500_000 + b"\n"),
    "json: brackets": ("json", lambda: b'{"logits":[' + b"[]," * (5 << 20) + b"[]]}"),
    "json: short numbers": ("json", lambda: b'{"logits":[[' + b"1," * (8 << 20) + b"1]]}"),
    "json: deep": ("json", lambda: b'{"x":' + b"[" * 1_000_000),
    "safetensors: deep": (
        "safetensors",
        lambda: struct.pack("<Q", 900_000) + b'{"a":' + b"[" * 899_995,
    ),
    "calibrate: npy of rank 100": (
        "calibrate npy",
        lambda: npy("(" + "1, " * 100 + ")", body=bytes(4)),
    ),
    "calibrate: npy of lengths below 0": ("calibrate npy", lambda: npy("(-2, -2)", body=bytes(16))),
    "calibrate: npy of true rows": ("calibrate npy", lambda: npy("(True, 4)", body=bytes(16))),
    "calibrate: npy of nothing, often": ("calibrate npy", lambda: npy(f"({10**30}, 0)")),
    "calibrate: npy too long to print": ("calibrate npy", lambda: npy(f"({_BIG}, {_BIG})")),
    "calibrate: numbers": (
        "calibrate json",
        lambda: b'{"logits":[[' + b"1," * (8 << 20) + b"null]]}",
    ),
    "v2: a shape too long to print": ("v2", lambda: _v2(shape=[_BIG, _BIG])),
    "v2: deep": ("v2", lambda: b'\n{"parameters":{"input":' + b"[" * 990 + b"]" * 990 + b"}}"),
    "labels: deep": ("labels", lambda: b"[" * 500_000),
    "v2: gzip": ("v2 gzip", lambda: gzip.compress(bytes(200_000_000), 1)),
    "calib: a lying header": ("calib", lambda: struct.pack("<Q", 2**62) + bytes(100)),
    "recipe: deep": ("recipe.toml", lambda: b"a = " + b"[" * 200_000),
    "recipe: deep, JSON": ("recipe.json", lambda: b"[" * 2_000_000),
    "recipe: many dots": ("recipe.toml", lambda: b"a" + b".a" * 50_000 + b" = 1"),
}  # fmt: skip


def _peak_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) << 10


def _chunks(name: str, content: bytes) -> str | None:
    """Read a file in chunks, like an upload: its numbers need not fit into memory."""

    def read(content: bytes) -> None:
        with open_data(io.BytesIO(content), format=name) as file:
            for _ in file.chunks():
                pass

    return refusal(read, content)


def main(names: list[str]) -> None:
    """Print a line of JSON for each file: name, size, memory, time and error message."""
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_BYTES, _LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT_SECONDS, _LIMIT_SECONDS))
    files = {"npz", "arrow", "csv", "json", "safetensors"}
    for name in names:
        parser, make = BOMBS[name]
        content = make()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current size
        before, started = _peak_bytes(), time.process_time()
        message = (
            _chunks(parser, content) if parser in files else refusal(PARSERS[parser].read, content)
        )
        result = {
            "name": name,
            "bytes": len(content),
            "mib": (_peak_bytes() - before) >> 20,
            "seconds": round(time.process_time() - started, 2),
            "message": message,
        }
        print(json.dumps(result), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:] or list(BOMBS))
