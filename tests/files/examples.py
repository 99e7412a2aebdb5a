"""The same data in every format, for the tests of this folder."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import safetensors.numpy
from numpy.typing import NDArray

Array = NDArray[Any]
Writer = Callable[..., bytes]


def example(rows: int = 40, classes: int = 4, dtype: Any = np.float32) -> tuple[Array, Array]:
    """Return logits with one masked class, and labels of other classes."""
    random = np.random.default_rng(7)
    logits = random.normal(size=(rows, classes)).astype(dtype)
    labels = random.integers(0, classes - 1, rows)
    if logits.dtype.kind == "f":
        logits[0, classes - 1] = -np.inf
    return logits, labels


def write_npz(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    return _npz(np.savez, logits, labels, name)


def write_npz_deflated(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    return _npz(np.savez_compressed, logits, labels, name)


def write_npy(logits: Array, labels: Array | None = None, name: str = "logits") -> bytes:
    target = io.BytesIO()
    np.save(target, logits)
    return target.getvalue()


def write_parquet(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    return parquet_of(list_table(logits, labels, name), row_group_size=17)


def write_parquet_columns(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    return parquet_of(column_table(logits, labels, name), row_group_size=17)


def write_arrow_stream(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    return stream_of(list_table(logits, labels, name), max_chunksize=13)


def write_arrow_columns(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    return stream_of(column_table(logits, labels, name), max_chunksize=13)


def write_arrow_compressed(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    return stream_of(list_table(logits, labels, name), max_chunksize=13, options=options)


def write_feather(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    target = io.BytesIO()
    pyarrow.feather.write_feather(list_table(logits, labels, name), target, chunksize=13)
    return target.getvalue()


def write_csv(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    stem = {"logits": "logit", "probabilities": "prob"}[name]
    header = [f"{stem}_{k}" for k in range(logits.shape[1])]
    lines = [",".join([*header, *([] if labels is None else ["labels"])])]
    for row in range(len(logits)):
        cells = [repr(float(value)) for value in logits[row]]
        lines.append(",".join(cells if labels is None else [*cells, str(labels[row])]))
    return ("\n".join(lines) + "\n").encode()


def write_json(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    rows = [[None if x == -np.inf else float(x) for x in row] for row in logits]
    document = {name: rows} | ({} if labels is None else {"labels": labels.tolist()})
    return json.dumps(document).encode()


def write_json_lines(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    lines = []
    for row in range(len(logits)):
        scores = [None if x == -np.inf else float(x) for x in logits[row]]
        line = {name: scores} | ({} if labels is None else {"labels": labels[row].item()})
        lines.append(json.dumps(line) + "\n")
    return "".join(lines).encode()


def write_safetensors(logits: Array, labels: Array | None, name: str = "logits") -> bytes:
    tensors = {name: np.ascontiguousarray(logits)}
    return safetensors.numpy.save(
        tensors if labels is None else {**tensors, "labels": np.ascontiguousarray(labels)}
    )


#: Writers of the same data, with the format to read it as.
WRITERS: dict[str, tuple[str, Writer]] = {
    "npz": ("npz", write_npz),
    "npz, deflated": ("npz", write_npz_deflated),
    "npy": ("npy", write_npy),
    "parquet": ("parquet", write_parquet),
    "parquet, column a class": ("parquet", write_parquet_columns),
    "arrow stream": ("arrow", write_arrow_stream),
    "arrow stream, column a class": ("arrow", write_arrow_columns),
    "arrow stream, zstd": ("arrow", write_arrow_compressed),
    "feather (arrow file, lz4)": ("arrow", write_feather),
    "csv": ("csv", write_csv),
    "json": ("json", write_json),
    "json lines": ("jsonl", write_json_lines),
    "safetensors": ("safetensors", write_safetensors),
}


def list_table(logits: Array, labels: Array | None, name: str = "logits") -> Any:
    """Return a table with a fixed-size-list column, a zero-copy view of the array."""
    flat = pa.array(np.ascontiguousarray(logits).reshape(-1))
    columns = {name: pa.FixedSizeListArray.from_arrays(flat, logits.shape[1])}
    return pa.table(columns if labels is None else {**columns, "labels": pa.array(labels)})


def column_table(logits: Array, labels: Array | None, name: str = "logits") -> Any:
    stem = {"logits": "logit", "probabilities": "prob"}[name]
    columns = {f"{stem}_{k}": pa.array(logits[:, k]) for k in range(logits.shape[1])}
    return pa.table(columns if labels is None else {**columns, "labels": pa.array(labels)})


def stream_of(table: Any, options: Any = None, max_chunksize: int | None = None) -> bytes:
    target = io.BytesIO()
    with pa.ipc.new_stream(target, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=max_chunksize)
    return target.getvalue()


def parquet_of(table: Any, **options: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return target.getvalue()


def _npz(save: Any, logits: Array, labels: Array | None, name: str) -> bytes:
    target = io.BytesIO()
    save(target, **({name: logits} if labels is None else {name: logits, "labels": labels}))
    return target.getvalue()
