"""Validation data in, results out: one format a file, never a pickle, constant memory by chunks.

>>> with open_data(Path("val.npz")) as file:
...     for chunk in file.chunks():
...         print(chunk.first_row, chunk.logits.shape, chunk.labels.shape)

A new format is one file that holds a `DataFile`, and its line in each of the tables below.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Literal, overload

from recalib.errors import InputError, UnsupportedError
from recalib.files.arrow import ArrowFile
from recalib.files.atomic_write import digest, write_atomically, write_npz
from recalib.files.base import Chunk, Data, DataFile, Input, LabelledData
from recalib.files.csv import CsvFile
from recalib.files.json import JsonFile
from recalib.files.npy import NpyFile
from recalib.files.npz import NpzFile
from recalib.files.parquet import ParquetFile
from recalib.files.read_all import read_whole
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

#: The content type of an upload, without parameters, to the format.
MEDIA_TYPES: dict[str, str] = {
    "application/x-npz": "npz",
    "application/x-npy": "npy",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.arrow.file": "arrow",
    "text/csv": "csv",
    "application/json": "json",
    "application/x-safetensors": "safetensors",
}

#: The end of a file's name, in lower case, to the format.
SUFFIXES: dict[str, str] = {
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".safetensors": "safetensors",
}


# `format` and `input` are what the command line and the API call them.
def open_data(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
) -> DataFile:
    """Open validation data for reading in chunks; use it as a context manager.

    Parameters
    ----------
    source: a path, or a seekable binary file, read from its beginning and left open.
    format: a key of `FORMATS`; needed for a file object, else the name's suffix tells.
    input: what the caller says the numbers are; never guessed from the values.

    Raises
    ------
    InputError: no such file, or its header shows that it cannot be used.
    UnsupportedError: a format that is not in `FORMATS`.
    """
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    if not isinstance(source, str | Path):
        return FORMATS[_format(format, "")](source, input)
    path = Path(source)
    reader = FORMATS[_format(format, path.suffix)]
    stream = _open(path)
    try:
        return reader(stream, input, owned=True)
    except BaseException:
        stream.close()
        raise


@overload
def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    labels: Literal["required"] = "required",
) -> LabelledData: ...


@overload
def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    labels: Literal["optional"],
) -> Data: ...


def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    labels: Literal["required", "optional"] = "required",
) -> Data:
    """Read validation data whole: logits (N, K) in the file's dtype, labels (N,) or None.

    Raises
    ------
    InputError: as `open_data`; whatever `recalib.arrays` refuses; or no labels where
        they are required.
    TooLargeError: it does not fit into memory.
    """
    with open_data(source, format=format, input=input) as file:
        if labels == "optional":
            return read_whole(file)
        if file.has_labels:
            data = read_whole(file)
            if data.labels is not None:
                return LabelledData(data.logits, data.labels)
        raise InputError(
            "labels",
            found=f"a {file.name} file without labels",
            accepted="a file with both (npy holds one array only; npz holds two)",
        )


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
