"""Round trips in every format: values, dtype, labels and rows, in chunks or at once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from fsspec.spec import AbstractBufferedFile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from recalib.errors import InputError
from recalib.files import FORMATS, MEDIA_TYPES, SUFFIXES, open_data, read
from tests.files.examples import (
    WRITERS,
    Writer,
    column_table,
    example,
    list_table,
    parquet_of,
    stream_of,
    write_npy,
)

every_writer = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=list(WRITERS))


@every_writer
def test_values_and_dtype_come_back(name: str, write: Writer) -> None:
    """Only text formats widen: to float64, without loss."""
    for dtype in (np.float16, np.float32, np.float64):
        logits, labels = example(dtype=dtype)
        data = read(io.BytesIO(write(logits, labels)), format=name, labels="optional")
        assert data.logits.dtype == (np.float64 if name in ("csv", "json", "jsonl") else dtype)
        np.testing.assert_array_equal(data.logits, logits)
        if name == "npy":
            assert data.labels is None
        else:
            assert data.labels is not None
            assert data.labels.dtype == np.int64
            np.testing.assert_array_equal(data.labels, labels)


@every_writer
def test_labels_have_any_number_type(name: str, write: Writer) -> None:
    logits, labels = example()
    if name == "npy":
        pytest.skip("npy holds no labels")
    for dtype in ("u1", "i2", "i4", "u8", "f4", "f8"):
        data = read(io.BytesIO(write(logits, labels.astype(dtype))), format=name)
        np.testing.assert_array_equal(data.labels, labels, err_msg=dtype)


def _multilabel_files(scores: Any, labels: Any) -> dict[str, bytes]:
    """Return files of independent labels: rows of zeros and ones, as booleans where possible."""
    archive = io.BytesIO()
    np.savez(archive, logits=scores, labels=labels)
    table = pa.table({"logits": list(scores), "labels": list(labels)})
    integers = labels.astype(np.int64)
    return {
        "npz": archive.getvalue(),
        "safetensors": safetensors.numpy.save({"logits": scores, "labels": labels}),
        "parquet": parquet_of(table, row_group_size=17),
        "arrow": stream_of(table, max_chunksize=13),
        "json": json.dumps({"logits": scores.tolist(), "labels": integers.tolist()}).encode(),
    }


@pytest.mark.parametrize("name", ["npz", "safetensors", "parquet", "arrow", "json"])
def test_multilabel_rows_come_back_in_every_format_with_matrices(name: str) -> None:
    random = np.random.default_rng(3)
    scores, labels = random.normal(size=(40, 5)), random.random((40, 5)) < 0.4
    content = _multilabel_files(scores, labels)[name]
    data = read(io.BytesIO(content), format=name, task="multilabel")
    np.testing.assert_array_equal(data.logits, scores)
    np.testing.assert_array_equal(data.labels, labels)
    assert data.labels.dtype == bool
    with open_data(io.BytesIO(content), format=name, task="multilabel") as file:
        chunks = list(file.chunks(max_bytes=7 * 5 * 8))
        assert len(chunks[0].logits) == 7
        np.testing.assert_array_equal(np.concatenate([c.labels for c in chunks]), labels)
    with pytest.raises(InputError, match="labels"):
        read(io.BytesIO(content), format=name)
    scores[30, 2] = np.inf
    damaged = _multilabel_files(scores, labels)
    if name != "json":  # which has no infinity
        with pytest.raises(InputError, match=r"logits\[30\]\[2\]"):
            read(io.BytesIO(damaged[name]), format=name, task="multilabel")


def test_multilabel_bytes_that_are_no_booleans_are_rejected() -> None:
    scores, labels = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.bool_)
    content = bytearray(_multilabel_files(scores, labels)["safetensors"])
    content[-1] = 2
    with pytest.raises(InputError, match=r"labels\[3\]\[2\]: found 2"):
        read(io.BytesIO(bytes(content)), format="safetensors", task="multilabel")


@every_writer
def test_chunks_cover_the_rows_in_order(name: str, write: Writer) -> None:
    """Chunks respect the size limit, number their rows, are writable, and can be read again."""
    logits, labels = example()
    with open_data(io.BytesIO(write(logits, labels)), format=name) as file:
        assert file.classes == 4
        assert file.rows in (None, 40)
        assert file.has_labels == (name != "npy")
        for _ in range(2):
            chunks = list(file.chunks(max_bytes=7 * 4 * file.dtype.itemsize))
            assert max(len(chunk.logits) for chunk in chunks) == 7
            starts = np.cumsum([0] + [len(chunk.logits) for chunk in chunks])
            assert [chunk.first_row for chunk in chunks] == starts[:-1].tolist()
            assert all(chunk.logits.flags.writeable for chunk in chunks)
            np.testing.assert_array_equal(np.concatenate([c.logits for c in chunks]), logits)


@every_writer
def test_row_larger_than_a_chunk_is_read_alone(name: str, write: Writer) -> None:
    logits, labels = example(rows=3)
    with open_data(io.BytesIO(write(logits, labels)), format=name) as file:
        assert [len(chunk.logits) for chunk in file.chunks(max_bytes=1)] == [1, 1, 1]


@every_writer
def test_callers_can_declare_probabilities(name: str, write: Writer) -> None:
    probabilities = np.array([[0.25, 0.75], [1.0, 0.0]], dtype=np.float32)
    content = write(probabilities, np.array([1, 0]), name="probabilities")
    data = read(io.BytesIO(content), format=name, input="probabilities", labels="optional")
    np.testing.assert_array_equal(data.logits, probabilities)


@every_writer
@pytest.mark.parametrize(
    ("stored", "declared"), [("probabilities", "logits"), ("logits", "probabilities")]
)
def test_ambiguous_numbers_are_rejected(
    name: str, write: Writer, stored: str, declared: Any
) -> None:
    """The error names the argument to write; npy has no names, so the caller declares the kind."""
    if name == "npy":
        pytest.skip("npy holds no names")
    content = write(np.array([[0.25, 0.75]]), np.array([1]), name=stored)
    with pytest.raises(InputError, match=f'write input="{stored}"'):
        read(io.BytesIO(content), format=name, input=declared)


@every_writer
def test_suffix_selects_the_format(name: str, write: Writer, tmp_path: Path) -> None:
    logits, labels = example()
    for suffix in (s for s, format_name in SUFFIXES.items() if format_name == name):
        path = tmp_path / f"VAL{suffix.upper()}"
        path.write_bytes(write(logits, labels))
        np.testing.assert_array_equal(read(path, labels="optional").logits, logits)
        np.testing.assert_array_equal(read(str(path), labels="optional").logits, logits)


@every_writer
def test_stream_of_the_caller_stays_open(name: str, write: Writer) -> None:
    stream = io.BytesIO(write(*example()))
    stream.seek(5)  # reading starts at the beginning, from any position
    read(stream, format=name, labels="optional")
    assert not stream.closed


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", "i1", ">i4", "u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_byte_order_and_axis_order_is_read(dtype: str, order: Any) -> None:
    """Arrays arrive in native byte order; integers as float64."""
    logits = np.arange(30).reshape(10, 3).astype(dtype).copy(order=order)
    with open_data(io.BytesIO(write_npy(logits)), format="npy") as file:
        chunks = list(file.chunks(max_bytes=4 * 3 * file.dtype.itemsize))
    expected = np.dtype(dtype).newbyteorder("=") if ">f" in dtype else np.dtype(np.float64)
    assert {chunk.logits.dtype for chunk in chunks} == {expected}
    np.testing.assert_array_equal(np.concatenate([c.logits for c in chunks]), logits)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_variable_lists_of_equal_length_are_read(kind: Any) -> None:
    logits, labels = example()
    table = list_table(logits, labels)
    table = table.set_column(0, "logits", table["logits"].cast(kind(pa.float32())))
    for name, content in (
        ("arrow", stream_of(table, max_chunksize=13)),
        ("parquet", parquet_of(table, row_group_size=13)),
    ):
        np.testing.assert_array_equal(read(io.BytesIO(content), format=name).logits, logits)


def test_fixed_shape_tensors_are_read() -> None:
    """torch and Hugging Face datasets write such columns."""
    logits, labels = example()
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(logits)
    content = stream_of(pa.table({"logits": tensors, "labels": labels}))
    np.testing.assert_array_equal(read(io.BytesIO(content), format="arrow").logits, logits)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_parquet_variants_are_read(version: str, compression: str, dictionary: bool) -> None:
    """Several pages a column, checksums, nullable columns, and nulls in other columns."""
    logits, labels = example(rows=5000, classes=3)
    for table in (list_table(logits, labels), column_table(logits, labels)):
        content = parquet_of(
            table.append_column("note", pa.array(["x", None] * 2500)),
            row_group_size=2000,
            data_page_size=1024,
            data_page_version=version,
            compression=compression,
            use_dictionary=dictionary,
            write_page_checksum=True,
            write_page_index=True,
        )
        data = read(io.BytesIO(content), format="parquet")
        np.testing.assert_array_equal(data.logits, logits)
        np.testing.assert_array_equal(data.labels, labels)


class Blob(AbstractBufferedFile):
    """A remote object like those of s3fs: byte ranges, read ahead and cached."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        super().__init__(None, "blob", "rb", block_size=100, size=len(content))

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._content[start:end]


@every_writer
def test_remote_objects_are_read(name: str, write: Writer) -> None:
    logits, labels = example()
    data = read(Blob(write(logits, labels)), format=name, labels="optional")
    np.testing.assert_array_equal(data.logits, logits)


def test_columns_are_read_in_any_order() -> None:
    """The integers order the classes (10 after 9), and `label` serves as well."""
    logits, labels = example(classes=11, rows=3)
    columns = {f"p{k}": logits[:, k] for k in reversed(range(11))}
    table = pa.table({"id": ["a", "b", "c"], **columns, "label": labels, "weight_1": [1, 2, 3]})
    for name, content in (("arrow", stream_of(table)), ("parquet", parquet_of(table))):
        data = read(io.BytesIO(content), format=name)
        np.testing.assert_array_equal(data.logits, logits)
        np.testing.assert_array_equal(data.labels, labels)


def test_csv_variants_are_read() -> None:
    """A byte-order mark, Windows line ends, quotes, float labels, no last newline."""
    text = '\ufeffid,"logit_1",logit_0,label\r\n"a, b",1.5,-inf,1.0\r\nc,-2e-3,4,0'
    data = read(io.BytesIO(text.encode()), format="csv")
    np.testing.assert_array_equal(data.logits, [[-np.inf, 1.5], [4, -0.002]])
    np.testing.assert_array_equal(data.labels, [1, 0])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_long_csv_is_read_in_blocks(end: str) -> None:
    """Blocks of 1 MiB end at any character; an error names the row of the file."""
    rows = 60_000
    lines = [f"{n}.25,-{n}.5,{n % 2}" for n in range(rows)]
    text = end.join(["logit_0,logit_1,labels", *lines])
    assert len(text) > 1 << 20
    data = read(io.BytesIO(text.encode()), format="csv")
    np.testing.assert_array_equal(data.logits[:, 0], np.arange(rows) + 0.25)
    np.testing.assert_array_equal(data.labels, np.arange(rows) % 2)
    lines[rows - 2] += ",7"
    with pytest.raises(InputError, match=f"row {rows - 2}: Expected 3 columns, got 4"):
        read(io.BytesIO(end.join(["logit_0,logit_1,labels", *lines]).encode()), format="csv")


def test_csv_row_longer_than_a_block_is_rejected() -> None:
    """The limit is 16 MiB; a valid row of the maximum number of columns is shorter."""
    text = b"logit_0,logit_1,labels\n" + b"1" * (18 << 20)
    with pytest.raises(InputError, match="a row of more than 16 MiB"):
        read(io.BytesIO(text), format="csv")


def test_bfloat16_is_widened() -> None:
    """1.5 and -2 are exact in bfloat16: the upper halves of their float32."""
    header = b'{"logits":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}'
    content = len(header).to_bytes(8, "little") + header + b"\xc0\x3f\x00\xc0"
    data = read(io.BytesIO(content), format="safetensors", labels="optional")
    assert data.logits.dtype == np.float32
    np.testing.assert_array_equal(data.logits, [[1.5, -2]])


@given(
    logits=hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 30), st.integers(2, 6)),
        elements=st.floats(-100, 100, width=16),
    ),
    max_bytes=st.integers(1, 500),
)
def test_arrays_come_back_in_any_chunks(logits: Any, max_bytes: int) -> None:
    labels = np.arange(len(logits)) % logits.shape[1]
    for name, write in WRITERS.values():
        with open_data(io.BytesIO(write(logits, labels)), format=name) as file:
            chunks = list(file.chunks(max_bytes))
        np.testing.assert_array_equal(np.concatenate([c.logits for c in chunks]), logits)
        if file.has_labels:
            np.testing.assert_array_equal(np.concatenate([c.labels for c in chunks]), labels)


def test_real_logits_are_read(real_data: Path) -> None:
    data = read(real_data / "resnet110-cifar10-val.npz")
    assert data.logits.shape == (5000, 10)
    assert data.labels is not None
    assert np.mean(data.logits.argmax(axis=1) == data.labels) > 0.9


def test_format_tables_agree() -> None:
    assert set(SUFFIXES.values()) == set(MEDIA_TYPES.values()) == set(FORMATS)
    assert all(reader.name == name for name, reader in FORMATS.items())
    assert {name for name, _ in WRITERS.values()} == set(FORMATS)
