"""Damaged and hostile files give one clear error, at low cost."""

from __future__ import annotations

import io
import resource
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy

from recalib.errors import InputError, TooLargeError, UnsupportedError
from recalib.files import FORMATS, Task, open_data, read
from tests.files.bad_files import BAD, BAD_OFFSETS, tensors
from tests.files.examples import (
    WRITERS,
    Writer,
    column_table,
    example,
    list_table,
    parquet_of,
    stream_of,
    write_npz,
    write_npz_deflated,
    write_parquet,
    write_parquet_columns,
    write_safetensors,
)
from tests.hostile.in_child import call_in_child, read_chunks

LOGITS, LABELS = example()
every_writer = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=list(WRITERS))


@pytest.mark.parametrize(("name", "content", "field", "part"), BAD.values(), ids=list(BAD))
def test_bad_files_are_rejected(name: str, content: bytes, field: str, part: str) -> None:
    """The error names the field and the content."""
    with pytest.raises(InputError) as excinfo:
        read(io.BytesIO(content), format=name, labels="optional")
    assert part in str(excinfo.value)
    assert excinfo.value.field == field
    assert excinfo.value.found
    assert excinfo.value.accepted


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("json", b'{"logits": [[1, 2], [3, 4]], "labels": []}', "multiclass"),
        ("json", b'{"logits": [[1, 2], [3, 4]], "labels": []}', "multilabel"),
        ("json", BAD["json: labels of no rows"][1], "multiclass"),
        ("csv", BAD["csv: cut in the header"][1], "multiclass"),
        ("parquet", BAD["parquet: no rows in the footer alone"][1], "multiclass"),
    ],
)
def test_damaged_files_do_not_count_as_empty(name: str, content: bytes, task: Task) -> None:
    """A data set of several files leaves out files without rows."""
    with pytest.raises(InputError) as excinfo:
        read(io.BytesIO(content), format=name, task=task)
    assert type(excinfo.value) is InputError


@pytest.mark.slow
def test_bad_files_need_little_memory() -> None:
    # `tracemalloc.stop` of Python 3.11 may crash a thread that allocates, such as the one that
    # still reads ahead in a rejected CSV file. Long after the CSV files none of them does.
    files = sorted(((case, *BAD[case][:2]) for case in BAD), key=lambda file: file[1] != "csv")
    tracemalloc.start()
    for case, name, content in files:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with suppress(InputError):
            read(io.BytesIO(content), format=name, labels="optional")
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < 32 << 20, case  # a million empty names, in the worst case
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("logits", "labels", "task", "message"),
    [
        ([1.0, None], 0, "multiclass", r"logits\[0\]\[1\].*-inf for a masked class"),
        ([1.0, None], [0, 1], "multilabel", r"logits\[0\]\[1\].*a finite number"),
        (None, 0, "multiclass", r"logits\[0\].*a list of numbers"),
        ([1.0, 2.0], None, "multiclass", r"labels\[0\].*a class number, an integer from 0"),
        ([1.0, 2.0], [0, None], "multilabel", r"labels\[0\]\[1\].*0 or 1"),
        ([1.0, 2.0], ["a", "b"], "multilabel", "labels: .*lists of 0 and 1, or of booleans"),
    ],
)
def test_errors_of_columns_say_what_the_task_accepts(
    logits: Any, labels: Any, task: Task, message: str
) -> None:
    kind = pa.int64() if task == "multiclass" else None
    table = pa.table(
        {"logits": pa.array([logits], pa.list_(pa.float32())), "labels": pa.array([labels], kind)}
    )
    with pytest.raises(InputError, match=message):
        read(io.BytesIO(parquet_of(table)), format="parquet", task=task)


#: Invalid data that every format can hold: logits, labels, field, part of the message.
WRONG: dict[str, tuple[Any, Any, str, str]] = {
    "NaN": ([[1, 2], [np.nan, 1]], [0, 1], "logits[1][0]", "NaN"),
    "infinite": ([[1, 2], [1, np.inf]], [0, 1], "logits[1][1]", "+inf"),
    "all masked": ([[1, 2], [-np.inf, -np.inf]], [0, 1], "logits[1]", "every class masked"),
    "label too large": ([[1, 2], [2, 1]], [0, 2], "labels[1]", "found 2"),
    "label negative": ([[1, 2], [2, 1]], [0, -1], "labels[1]", "found -1"),
    "label masked": ([[1, 2], [2, -np.inf]], [0, 1], "labels[1]", "masked"),
    "label fractional": ([[1, 2], [2, 1]], [0, 0.5], "labels[1]", "0.5"),
    "label NaN": ([[1, 2], [2, 1]], [0, np.nan], "labels[1]", ""),
}


@every_writer
def test_wrong_values_are_rejected(name: str, write: Writer) -> None:
    """Row numbers count from the start of the file, not of the chunk."""
    for logits, labels, field, part in WRONG.values():
        if name == "npy" and field.startswith("labels"):
            continue  # npy holds no labels
        if name in ("json", "jsonl") and not np.isfinite([*np.ravel(logits), *labels]).all():
            continue  # JSON has neither NaN nor infinity: see bad_files.py; null is a mask
        content = write(np.array(logits, dtype=np.float32), np.array(labels))
        with (
            pytest.raises(InputError, match="accepted") as excinfo,
            open_data(io.BytesIO(content), format=name) as file,
        ):
            list(file.chunks(max_bytes=1))
        assert excinfo.value.field == field
        assert part in str(excinfo.value)


@every_writer
def test_missing_labels_are_rejected(name: str, write: Writer) -> None:
    content = write(LOGITS, None)
    with pytest.raises(InputError, match="without labels"):
        read(io.BytesIO(content), format=name)
    assert read(io.BytesIO(content), format=name, labels="optional").labels is None


def test_error_of_the_type_of_labels_says_what_both_tasks_accept() -> None:
    content = write_npz(LOGITS, np.full(LOGITS.shape, "a"))
    with pytest.raises(InputError, match=r"class numbers.*zeros and ones, \(N, K\)"):
        read(io.BytesIO(content), format="npz", task="multilabel")


@pytest.mark.parametrize("write", [write_npz, write_safetensors], ids=["npz", "safetensors"])
@pytest.mark.parametrize("shape", [(4,), (2, 2, 2), ()])
def test_wrong_ranks_are_rejected(write: Writer, shape: tuple[int, ...]) -> None:
    name = write.__name__.removeprefix("write_")
    with pytest.raises(InputError, match="shape"):
        read(io.BytesIO(write(np.zeros(shape), LABELS)), format=name)


def test_safetensors_package_rejects_the_same_offsets() -> None:
    """No file is valid for one reader and invalid for another."""
    assert len(safetensors.numpy.load(tensors(64))) == 2
    for content, _ in BAD_OFFSETS.values():
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load(content)


@pytest.mark.slow
@every_writer
def test_truncated_files_are_rejected(name: str, write: Writer) -> None:
    """Except in text: a cut in the last cell leaves a shorter number, between lines fewer rows."""
    content = write(LOGITS, LABELS)
    for size in range(0, len(content), 7):
        try:
            data = read(io.BytesIO(content[:size]), format=name, labels="optional")
        except InputError:
            continue
        assert name in ("csv", "jsonl")
        np.testing.assert_array_equal(data.logits[:-1], LOGITS[: len(data.logits) - 1])


@pytest.mark.slow
@pytest.mark.parametrize("table", [column_table, list_table])
@pytest.mark.parametrize("dictionary", [True, False])
def test_row_groups_are_bounded(table: Callable[..., pa.Table], dictionary: bool) -> None:
    """280 MB of zeros in about 100 kB, as lists or one column a class, run-length encoded."""
    zeros = np.zeros((700_000, 100), np.float32)
    content = parquet_of(table(zeros, None), compression="zstd", use_dictionary=dictionary)
    assert len(content) < 1 << 20
    with pytest.raises(TooLargeError, match="row_group_size"):
        open_data(io.BytesIO(content), format="parquet")


def test_pages_with_false_sizes_are_rejected() -> None:
    """A page that claims 2 GB is rejected, and this process does not grow."""
    content = write_parquet_columns(LOGITS[:5], LABELS[:5])
    # Fields 1 to 3 of its header: a dictionary page, and two sizes of one byte each.
    assert content[4:7] + content[8:9] == b"\x15\x04\x15\x15"
    size = b"\x15\xfe\xff\xff\xff\x0f"
    lying = content[:6] + size + size + content[10:]
    before = _peak_resident()
    with pytest.raises(InputError, match=r"than expected|more than \d+ MiB"):
        call_in_child(read_chunks, lying, format="parquet")
    assert _peak_resident() - before < 64 << 20


@pytest.mark.slow
def test_damaged_parquet_footers_are_safe() -> None:
    """pyarrow 26 ends the process that reads the first three; the caller gets an error or data."""
    content = write_parquet(LOGITS[:5], LABELS[:5])
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in (17, 18, 49, *range(0, len(content) - start, 21)):
        changed = bytearray(content)
        changed[start + at] ^= 1
        with suppress(InputError):
            call_in_child(read_chunks, bytes(changed), format="parquet")
    call_in_child(read_chunks, content, format="parquet")


def test_arrow_batches_are_bounded() -> None:
    """Compressed and unpacked sizes are limited: 280 MB of zeros in about 100 kB."""
    table = list_table(np.zeros((70_000, 1000), np.float32), None)
    packed = stream_of(table, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert len(packed) < 1 << 20
    for content in (packed, stream_of(table)):
        with pytest.raises(TooLargeError, match="max_chunksize"):
            read(io.BytesIO(content), format="arrow", labels="optional")


def test_compressed_zeros_are_read_in_constant_memory() -> None:
    """80 MB in 80 kB is unusual but valid: reading needs the memory of a chunk."""
    content = write_npz_deflated(np.zeros((100_000, 100)), None)
    assert len(content) < 100_000
    tracemalloc.start()
    with open_data(io.BytesIO(content), format="npz") as file:
        assert sum(len(chunk.logits) for chunk in file.chunks(1 << 20)) == 100_000
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_damaged_member_fails_its_checksum() -> None:
    content = bytearray(write_npz(LOGITS, LABELS))
    content[400] ^= 1
    with pytest.raises(InputError, match="CRC-32"):
        read(io.BytesIO(bytes(content)), format="npz")


def test_other_members_are_ignored(tmp_path: Path) -> None:
    """No member is unpacked to disk."""
    target = io.BytesIO(write_npz(LOGITS, LABELS))
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("../../evil.npy", b"no array")
        archive.writestr("notes.txt", b"text")
    np.testing.assert_array_equal(read(target, format="npz").logits, LOGITS)


@pytest.mark.parametrize(
    ("compression", "checksum", "is_seen"),
    [("snappy", True, True), ("zstd", True, True), ("gzip", False, True), ("snappy", False, False)],
)
def test_flipped_bits_in_pages(compression: str, checksum: bool, is_seen: bool) -> None:
    """Page checksums and gzip's own show each; without them Snappy's pages show few of them."""
    logits, labels = example(rows=500, classes=10)
    table = list_table(logits.astype(np.float64), labels)
    intact = parquet_of(table, compression=compression, write_page_checksum=checksum)
    refused = 0
    places = range(1_000, 31_000, 1_000)  # in the pages of the logits
    for place in places:
        content = bytearray(intact)
        content[place] ^= 4
        try:
            read(io.BytesIO(content), format="parquet")
        except InputError:
            refused += 1
    assert (refused == len(places)) == is_seen


def test_unsupported_sources_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").touch()
    with pytest.raises(UnsupportedError, match="npz, npy, parquet, arrow, csv, json, jsonl, safe"):
        open_data(tmp_path / "model.pkl")
    with pytest.raises(UnsupportedError, match="format"):
        open_data(io.BytesIO())
    with pytest.raises(InputError, match="No such file"):
        open_data("missing.npz")
    with pytest.raises(InputError, match="No such file"):
        open_data("a folder that is missing")
    with pytest.raises(InputError, match="input: found 'scores'"):
        open_data("missing.npz", input="scores")  # type: ignore[arg-type]


def test_system_errors_are_not_translated() -> None:
    """A disk error is not the caller's fault and is not reported as a damaged file."""

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    for name in FORMATS:
        with pytest.raises(OSError, match="Input/output error"):
            read(Broken(b"x" * 99), format=name, labels="optional")


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
