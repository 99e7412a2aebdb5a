"""Read validation data in chunks of constant memory, and write results. Pickles are never loaded.

>>> with open_data(Path("val.npz")) as file:
...     for chunk in file.chunks():
...         print(chunk.first_row, chunk.logits.shape, chunk.labels.shape)

A new format is one module with a `DataFile`, and a line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal, overload

from recalib.errors import InputError, UnsupportedError
from recalib.files.arrow import ArrowFile
from recalib.files.atomic_write import digest, write_atomically, write_npz
from recalib.files.base import Chunk, Data, DataFile, Input, LabelledData, Task
from recalib.files.csv import CsvFile
from recalib.files.json import JsonFile
from recalib.files.npy import NpyFile
from recalib.files.npz import NpzFile
from recalib.files.parquet import ParquetFile
from recalib.files.read_all import read_all
from recalib.files.safetensors import SafetensorsFile

__all__ = [
    "FORMATS",
    "MEDIA_TYPES",
    "SUFFIXES",
    "Chunk",
    "Data",
    "DataFile",
    "Input",
    "LabelledData",
    "Task",
    "digest",
    "open_data",
    "read",
    "write_atomically",
    "write_npz",
]

FORMATS: dict[str, type[DataFile]] = {
    "npz": NpzFile,
    "npy": NpyFile,
    "parquet": ParquetFile,
    "arrow": ArrowFile,
    "csv": CsvFile,
    "json": JsonFile,
    "safetensors": SafetensorsFile,
}

#: Format by content type of an upload, without parameters.
MEDIA_TYPES: dict[str, str] = {
    media_type: name for name, reader in FORMATS.items() for media_type in reader.media_types
}

#: Format by suffix of the file name, in lower case.
SUFFIXES: dict[str, str] = {
    suffix: name for name, reader in FORMATS.items() for suffix in reader.suffixes
}


# The command line and the API use the names `format` and `input`.
def open_data(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> DataFile:
    """Open validation data for reading in chunks; use it as a context manager.

    Parameters
    ----------
    source: a path, or a seekable binary file, which is read from its start and left open.
    format: a key of `FORMATS`; by default it follows from the suffix of the path.
    input: what the numbers are; never guessed from the values.
    task: `multilabel` for labels (N, K) of zeros and ones.
    columns: names of the columns of a table, one a class, in the order of the classes; labels may
        then be these names. By default as in `recalib.files.column_names`.
    class_names: names of the classes, if they are known: the columns of a table that has them.

    Raises
    ------
    InputError: the file does not exist, or its header is not valid.
    UnsupportedError: `FORMATS` does not contain the format.
    """
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    if not isinstance(source, str | Path):
        reader = _reader(format, "", columns)
        return reader(source, input, task=task, columns=columns, class_names=class_names)
    path = Path(source)
    stream = _open(path)  # first: a folder that does not exist has no suffix either
    try:
        reader = _reader(format, path.suffix, columns)
        return reader(
            stream, input, task=task, columns=columns, class_names=class_names, owned=True
        )
    except BaseException:
        stream.close()
        raise


@overload
def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    labels: Literal["required"] = "required",
) -> LabelledData: ...


@overload
def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    labels: Literal["optional"],
) -> Data: ...


def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    labels: Literal["required", "optional"] = "required",
) -> Data:
    """Read all validation data: logits (N, K) in the file's dtype, and labels or None.

    Labels are (N,), or (N, K) for the task `multilabel`.

    Raises
    ------
    InputError: as `open_data`; or the values are not valid; or required labels are missing.
    TooLargeError: the data does not fit into memory.
    """
    with open_data(
        source, format=format, input=input, task=task, columns=columns, class_names=class_names
    ) as file:
        if labels == "optional":
            return read_all(file)
        if file.has_labels:
            data = read_all(file)
            if data.labels is not None:
                return LabelledData(data.logits, data.labels)
        raise InputError(
            "labels",
            found=f"a {file.name} file without labels",
            accepted="a file with both (npy holds one array only; npz holds two)",
        )


def _reader(format: str | None, suffix: str, columns: Sequence[str] | None) -> type[DataFile]:
    reader = FORMATS[_format(format, suffix)]
    if columns is not None and not reader.is_table:
        tables = ", ".join(name for name, kind in FORMATS.items() if kind.is_table)
        found = f"{', '.join(columns)[:60]} of a {reader.name} file"
        raise InputError("columns", found=found, accepted=f"none, or a table: {tables}")
    return reader


def _format(name: str | None, suffix: str) -> str:
    chosen = SUFFIXES.get(suffix.lower()) if name is None else name
    if chosen in FORMATS:
        return chosen
    found = repr(name) if name is not None else f"a name ending in {suffix!r}"
    raise UnsupportedError(
        "format", found=found, accepted=f"{', '.join(FORMATS)} (as {', '.join(SUFFIXES)})"
    )


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InputError(
            "data", found=f"{path}: {error.strerror}", accepted="a readable file"
        ) from error
    except ValueError as error:  # a NUL in the name
        raise InputError("data", found=repr(str(path)), accepted="a file name") from error
