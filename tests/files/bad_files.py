"""Damaged and hostile files of every format, with the expected errors."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.files.examples import (
    example,
    list_table,
    parquet_of,
    stream_of,
    write_feather,
    write_npy,
    write_npz,
)

LOGITS, LABELS = example()


def npy(shape: str, dtype: str = "<f4", order: bool = False, body: bytes = b"") -> bytes:
    """Return an npy file with this header and any body."""
    header = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def npz(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return target.getvalue()


def npz_twice() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("logits.npy", write_npy(LOGITS))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("logits.npy", write_npy(LOGITS))
    return target.getvalue()


def npz_method(method: int) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr("logits.npy", write_npy(LOGITS))
    return target.getvalue()


def npz_encrypted() -> bytes:
    """Return an archive with the encryption bit set in both headers of each member."""
    content = bytearray(write_npz(LOGITS, LABELS))
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(mark)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(mark, at + 4)
    return bytes(content)


def npz_bomb() -> bytes:
    """Return a few bytes whose directory and header both claim three gigabytes."""
    content = bytearray(npz(logits=npy("(400000000, 2)", body=bytes(100_000))))
    entry = content.find(b"PK\x01\x02")
    header = len(npy("(400000000, 2)"))
    content[entry + 24 : entry + 28] = struct.pack("<I", header + 400000000 * 8)
    return bytes(content)


def npz_directory() -> bytes:
    """Return an archive of 20,000 members, with a directory of more than 1 MiB."""
    # `zipfile` takes a second for it, in every test process.
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("member 00000000", b"")
    member = target.getvalue()
    at, end = member.index(b"PK\x01\x02"), member.index(b"PK\x05\x06")
    start, count = member[at : end - 8], 20_000
    directory = b"".join(start + b"%08d" % index for index in range(count))
    trailer = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), at, 0)
    return member[:at] + directory + trailer


def npz_longer_than_declared() -> bytes:
    """Return an archive with too small sizes in the directory and the header."""
    return npz(logits=npy("(3, 4)", body=bytes(3 * 16 + 5)))


def safetensors(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def tensor(shape: list[Any], end: Any, dtype: str = "F32", begin: Any = 0) -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return safetensors({"logits": entry}, bytes(64))


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def tensors(labels: int, other: Any = None, size: int = 96) -> bytes:
    """Return 4 x 4 logits in bytes 0 to 64, four labels from byte `labels`, and another tensor."""
    header = {
        "logits": _entry("F32", [4, 4], 0, 64),
        "labels": _entry("I64", [4], labels, labels + 32),
    }
    return safetensors(header if other is None else {**header, "other": other}, bytes(size))


#: Invalid for the safetensors package too.
BAD_OFFSETS = {
    "labels overlap logits": (tensors(32), "tensor 'labels' at bytes 32 to 64, not from 64"),
    "a gap": (tensors(72, size=104), "tensor 'labels' at bytes 72 to 104, not from 64"),
    "over 64 bits": (tensors(2**64 - 32), "tensor 'labels' at bytes 18446744073709551584"),
    "more than the tensors": (tensors(64, size=97), "97 bytes of numbers where"),
    "less than the tensors": (tensors(64, size=95), "95 bytes of numbers where"),
    "another overlaps": (tensors(64, _entry("F32", [16], 0, 64)), "bytes 0 to 64, not from 64"),
    "another ends first": (tensors(64, _entry("F8_E4M3", [4], 100, 96)), "bytes 100 to 96"),
    "another is too long": (tensors(64, _entry("F32", [2**62], 96, 112), 112), "where the header"),
}


def lists(rows: list[Any], labels: list[Any] | None = None, kind: Any = None) -> Any:
    logits = pa.array(rows, kind or pa.list_(pa.float32()))
    return pa.table({"logits": logits, "labels": labels or np.zeros(len(rows), int)})


def parquet_footer_without_rows() -> bytes:
    """Return a file of one row group of 40 rows whose footer counts none."""
    content = parquet_of(list_table(LOGITS, LABELS))
    count = b"\x16\x50\x19\x1c"  # 40, and the list of row groups
    assert content.count(count) == 1
    return content.replace(count, b"\x16\x00\x19\x1c")


def arrow_claims(pattern: bytes, replacement: bytes) -> bytes:
    """Return a stream with one changed number in the metadata of a batch."""
    content = stream_of(list_table(LOGITS, LABELS))
    assert pattern in content
    return content.replace(pattern, replacement)


CSV = "logit_0,logit_1,labels\n"

#: Description of the file: format, content, field of the error, part of its message.
BAD: dict[str, tuple[str, bytes, str, str]] = {
    "npy: 10^12 rows in a few bytes": ("npy", npy("(10**12, 4)"), "logits", "does not parse"),
    "npy: 10^12 rows": ("npy", npy("(1000000000000, 4)"), "logits", "claims float32"),
    "npy: 10^30 rows": ("npy", npy(f"({10**30}, 4)"), "logits", "claims float32"),
    "npy: negative": ("npy", npy("(-3, -4)", body=bytes(48)), "logits", "shape (-3, -4)"),
    "npy: 10^9 classes": ("npy", npy("(0, 1000000000)"), "logits", "no rows"),
    "npy: huge header": ("npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "logits", "2147483647 bytes"),
    "npy: version 9": ("npy", b"\x93NUMPY\x09\x00\x00\x00", "logits", "version 9.0"),
    "npy: nested header": ("npy", npy("(" * 9000), "logits", "does not parse"),
    "npy: objects": ("npy", npy("(2, 2)", "|O", body=bytes(32)), "logits", "pickle"),
    "npy: text": ("npy", npy("(2, 2)", "<U3", body=bytes(48)), "logits", "dtype <U3"),
    "npy: complex": ("npy", npy("(2, 2)", "<c8", body=bytes(32)), "logits", "complex64"),
    "npy: Fortran, large": (
        "npy",
        npy("(10000000, 100)", order=True),
        "logits",
        "numpy.ascontiguousarray",
    ),
    "npy: a pickle": ("npy", pickle.dumps(LOGITS), "logits", "accepted: a NumPy array"),
    "npy: bytes behind": ("npy", write_npy(LOGITS) + b"x", "logits", "641 bytes"),
    "npz: not a zip": ("npz", b"logits" * 100, "data", "not a zip file"),
    "npz: a pickle": ("npz", pickle.dumps(LOGITS), "data", "not a zip file"),
    "npz: a pickle inside": ("npz", npz(logits=pickle.dumps(LOGITS)), "logits", "NumPy array"),
    "npz: an object array": ("npz", npz(logits=npy("(2, 2)", "|O")), "logits", "pickle"),
    "npz: only paths": ("npz", npz(**{"../logits": write_npy(LOGITS)}), "logits", "../logits"),
    "npz: 10^12 rows": ("npz", npz(logits=npy("(1000000000000, 4)")), "logits", "claims"),
    "npz: more than claimed": ("npz", npz_longer_than_declared(), "logits", "53 bytes"),
    "npz: a bomb": ("npz", npz_bomb(), "logits", "claim"),
    "npz: a huge directory": ("npz", npz_directory(), "data", "zip directory over 1 MiB"),
    "npz: duplicates": ("npz", npz_twice(), "logits", "this name twice"),
    "npz: encrypted": ("npz", npz_encrypted(), "logits", "encrypted"),
    "npz: lzma": ("npz", npz_method(zipfile.ZIP_LZMA), "logits", "method 14"),
    "npz: bzip2": ("npz", npz_method(zipfile.ZIP_BZIP2), "logits", "method 12"),
    "npz: labels of another length": ("npz", write_npz(LOGITS, LABELS[1:]), "labels", "(39,)"),
    "npz: labels of rank 2": ("npz", write_npz(LOGITS, np.c_[LABELS, LABELS]), "labels", "(40, 2)"),
    "npz: labels as objects": (
        "npz",
        npz(logits=write_npy(LOGITS), labels=npy("(40,)", "|O")),
        "labels",
        "pickle",
    ),
    "npz: labels as text": ("npz", write_npz(LOGITS, LABELS.astype(str)), "labels", "dtype <U"),
    "npz: other names": ("npz", npz(outputs=write_npy(LOGITS)), "logits", "'outputs'"),
    "npz: empty": ("npz", npz(), "logits", "nothing"),
    "parquet: empty": ("parquet", b"", "data", "ends too early"),
    "parquet: not one": ("parquet", b"PAR1 but no more", "data", "no Parquet footer"),
    "parquet: footer beyond": ("parquet", b"PAR1\xff\xff\xff\x7fPAR1", "data", "no Parquet footer"),
    "parquet: footer of nonsense": (
        "parquet",
        b"PAR1" + b"\xff" * 40 + struct.pack("<I", 40) + b"PAR1",
        "data",
        "cannot be read as parquet",
    ),
    "parquet: ragged": ("parquet", parquet_of(lists([[1, 2], [3]])), "logits[1]", "1 classes"),
    "parquet: null row": ("parquet", parquet_of(lists([[1, 2], None])), "logits[1]", "null"),
    "parquet: null": ("parquet", parquet_of(lists([[1, 2], [3, None]])), "logits[1][1]", "null"),
    "parquet: text": (
        "parquet",
        parquet_of(lists([["a", "b"]], kind=pa.list_(pa.string()))),
        "logits",
        "string",
    ),
    "parquet: not lists": (
        "parquet",
        parquet_of(pa.table({"logits": ["1.0", "2.0"], "labels": [0, 1]})),
        "logits",
        "a column of type string",
    ),
    "parquet: labels as text": (
        "parquet",
        parquet_of(lists([[1, 2]], ["a"])),
        "labels[0]",
        "found 'a'",
    ),
    "parquet: null label": ("parquet", parquet_of(lists([[1, 2]], [None])), "labels", "type null"),
    "parquet: no rows": (
        "parquet",
        parquet_of(list_table(LOGITS[:0], LABELS[:0])),
        "logits",
        "no rows",
    ),
    "parquet: no rows in the footer alone": ("parquet", parquet_footer_without_rows(), "data", ""),
    "parquet: two runs of columns": (
        "parquet",
        parquet_of(pa.table({"a0": [1.0], "a1": [1.0], "b0": [1.0], "b1": [1.0]})),
        "logits",
        "a0..1 and b0..1",
    ),
    "parquet: a gap in the columns": (
        "parquet",
        parquet_of(pa.table({"a0": [1.0], "a2": [1.0]})),
        "logits",
        "'a0', 'a2'",
    ),
    "parquet: both label and labels": (
        "parquet",
        parquet_of(pa.table({"a0": [1.0], "a1": [1.0], "label": [0], "labels": [0]})),
        "labels",
        "both",
    ),
    "arrow: empty": ("arrow", b"", "data", "ends too early"),
    "arrow: not one": ("arrow", b"0123456789" * 9, "data", "no Arrow message"),
    "arrow: feather 1": ("arrow", b"FEA1" + bytes(99), "data", "version 1"),
    "arrow: file without end": ("arrow", write_feather(LOGITS, LABELS)[:-4], "data", "its end"),
    "arrow: huge metadata": (
        "arrow",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(99),
        "data",
        "2147483647 bytes",
    ),
    "arrow: huge body": (
        "arrow",
        arrow_claims(struct.pack("<q", 40 * 16 + 40 * 8), struct.pack("<q", 2**40)),
        "data",
        "ends too early",
    ),
    "arrow: ragged": ("arrow", stream_of(lists([[1, 2], [3]])), "logits[1]", "1 classes"),
    "arrow: null": ("arrow", stream_of(lists([[1, 2], [3, None]])), "logits[1][1]", "null"),
    "arrow: null in a column": (
        "arrow",
        stream_of(pa.table({"z0": [1.0, None], "z1": [1.0, 2.0]})),
        "logits[1][0]",
        "null",
    ),
    "arrow: no rows of lists": ("arrow", stream_of(lists([])), "logits", "no rows"),
    "arrow: no rows": ("arrow", stream_of(list_table(LOGITS[:0], LABELS[:0])), "logits", "no rows"),
    "arrow: empty lists": ("arrow", stream_of(lists([[], []])), "logits", "0 class(es)"),
    "json: not JSON": ("json", b"hello", "data", "malformed"),
    "json: truncated": ("json", b'{"logits": [[1, 2', "data", "truncated"),
    "json: NaN": ("json", b'{"logits": [[NaN, 1]], "labels": [0]}', "data", "malformed"),
    "json: text": ("json", b'{"logits": [["1", 2]], "labels": [0]}', "logits[0][0]", "str"),
    "json: ragged": ("json", b'{"logits": [[1, 2], [3]], "labels": [0, 0]}', "logits[1]", "1 val"),
    "json: no rows": ("json", b'{"logits": [], "labels": []}', "logits", "no rows"),
    "json: too many labels": (
        "json",
        b'{"logits": [[1, 2]], "labels": [0, 1]}',
        "labels",
        "2 labels",
    ),
    "json: labels of no rows": ("json", b'{"logits": [], "labels": [0]}', "labels", "1 labels"),
    "json: fraction": ("json", b'{"logits": [[1, 2]], "labels": [0.5]}', "labels[0]", "0.5"),
    "json: huge": ("json", b'{"logits": [[1e400, 2]], "labels": [0]}', "logits[0][0]", ""),
    "csv: empty": ("csv", b"", "logits", "found nothing"),
    "csv: no header": ("csv", b"1.5,2.5,0\n3.5,1.0,1\n", "logits", "'1.5', '2.5', '0'"),
    "csv: header only": ("csv", CSV.encode(), "logits", "no rows"),
    "csv: cut in the header": ("csv", b"logit_0,logit_1,lab", "data", "without its end"),
    "csv: blank lines only": ("csv", f"{CSV}\n\n".encode(), "logits", "no rows"),
    "csv: empty cell": ("csv", f"{CSV}1,2,0\n1,,0\n".encode(), "logits[1][1]", "null"),
    "csv: empty label": ("csv", f"{CSV}1,2,\n".encode(), "labels[0]", "null"),
    "csv: text": (
        "csv",
        f"{CSV}1,2,0\n1,x,0\n".encode(),
        "logits[1][1]",
        "'x'",
    ),
    "csv: labels as text": ("csv", f"{CSV}1,2,0\n1,2,cat\n".encode(), "labels[1]", "'cat'"),
    "csv: text after another column": (
        "csv",
        b"id,logit_0,logit_1,labels\na,1,2,0\nb,1,2,0\nc,1,two,0\n",
        "logits[2][1]",
        "'two'",
    ),
    "csv: nan": ("csv", f"{CSV}1,2,0\n1,nan,0\n".encode(), "logits[1][1]", "NaN"),
    "csv: inf": ("csv", f"{CSV}1,2,0\n1,inf,0\n".encode(), "logits[1][1]", "+inf"),
    "csv: a short row": ("csv", f"{CSV}1,2,0\n1,2\n".encode(), "data", "row 1: Expected 3 columns"),
    "csv: a long row": (
        "csv",
        f"{CSV}1,2,0\n1,2,0,4\n".encode(),
        "data",
        "row 1: Expected 3 columns",
    ),
    "csv: two separators": ("csv", b"logit_0;logit_1,label\n1;2,0\n", "separator", "',' and ';'"),
    "jsonl: no rows": ("jsonl", b"\n", "logits", "no rows"),
    "jsonl: not JSON": ("jsonl", b"logits\n", "data[0]", "malformed"),
    "jsonl: an array": ("jsonl", b"[1, 2]\n", "data[0]", "array"),
    "jsonl: nested": ("jsonl", b'{"logits": ' + b"[" * 5000, "data[0]", "recursion"),
    "jsonl: ragged": (
        "jsonl",
        b'{"logits": [1, 2], "label": 0}\n{"logits": [1], "label": 0}\n',
        "logits[1]",
        "1 classes",
    ),
    "jsonl: a missing label": (
        "jsonl",
        b'{"logits": [1, 2], "label": 0}\n{"logits": [1, 2]}\n',
        "labels[1]",
        "null",
    ),
    "csv: not text": ("csv", b"\xff\xfe\x00" * 100, "data", "cannot be read as csv"),
    "csv: endless header": ("csv", b"a" * (6 << 20), "data", "no end of the first line"),
    "csv: names twice": ("csv", b"p0,p1,p1,labels\n1,2,3,0\n", "p1", "twice"),
    "csv: lists": ("csv", b'logits,labels\n"[1,2]",0\n', "logits[0][0]", "[1,2]"),
    "safetensors: empty": ("safetensors", b"", "data", "ends too early"),
    "safetensors: huge header": ("safetensors", b"\xff" * 16, "data", "18446744073709551615"),
    "safetensors: no JSON": ("safetensors", safetensors(b"not json"), "data", "cannot be read"),
    "safetensors: a list": ("safetensors", safetensors([1, 2]), "data", "not an object"),
    "safetensors: nested": ("safetensors", safetensors(b"[" * 99_999), "data", "cannot be read"),
    "safetensors: twice": (
        "safetensors",
        safetensors(b'{"logits": {}, "logits": {}}'),
        "data",
        "twice",
    ),
    "safetensors: no offsets": ("safetensors", safetensors({"logits": {}}), "data", "cannot be"),
    "safetensors: null": ("safetensors", safetensors({"logits": None}), "data", "cannot be read"),
    "safetensors: bool": ("safetensors", tensor([True, 4], 16), "data", "not a size"),
    "safetensors: negative": ("safetensors", tensor([-4, -4], 64), "data", "not a size"),
    "safetensors: beyond": ("safetensors", tensor([10**12, 4], 16 * 10**12), "data", "claims"),
    "safetensors: mismatch": ("safetensors", tensor([4, 4], 32), "logits", "claims"),
    "safetensors: backwards": ("safetensors", tensor([4, 4], 0, begin=64), "logits", "claims"),
    "safetensors: float8": ("safetensors", tensor([4, 4], 16, "F8_E4M3"), "logits", "F8_E4M3"),
    "safetensors: text": ("safetensors", tensor([4, 4], "64"), "data", "not a size"),
    **{
        f"safetensors: {name}": ("safetensors", content, "data", part)
        for name, (content, part) in BAD_OFFSETS.items()
    },
}
