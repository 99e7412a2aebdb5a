"""Read validation data in chunks of constant memory, and write results. Pickles are never loaded.

>>> with open_data(Path("val.npz")) as file:
...     for chunk in file.chunks():
...         print(chunk.first_row, chunk.logits.shape, chunk.labels.shape)

A new format is one module with a `DataFile`, and a line in `FORMATS`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, overload

from recalib.core.options import check_choice
from recalib.errors import InputError, UnsupportedError
from recalib.files.arrow import ArrowFile
from recalib.files.atomic_write import digest, write_atomically, write_npz
from recalib.files.base import (
    NO_SELECTION,
    Chunk,
    Data,
    DataFile,
    DataSelection,
    Input,
    LabelledData,
    Task,
)
from recalib.files.csv import CsvFile
from recalib.files.json import JsonFile
from recalib.files.json_lines import JsonLinesFile
from recalib.files.npy import NpyFile
from recalib.files.npz import NpzFile
from recalib.files.parquet import ParquetFile
from recalib.files.raw_arrays import open_file
from recalib.files.read_all import read_all
from recalib.files.safetensors import SafetensorsFile

__all__ = [
    "FORMATS",
    "MEDIA_TYPES",
    "SUFFIXES",
    "Chunk",
    "Data",
    "DataFile",
    "DataSelection",
    "Input",
    "LabelledData",
    "Task",
    "digest",
    "format_of",
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
    "jsonl": JsonLinesFile,
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

#: Suffixes of pickles, also those of joblib and torch.
_PICKLES = (".pkl", ".pickle", ".p", ".joblib", ".pt", ".pth")


# The command line and the API use the names `format` and `input`.
def open_data(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    selection: DataSelection = NO_SELECTION,
) -> DataFile:
    """Open validation data for reading in chunks; use it as a context manager.

    Parameters
    ----------
    source: a path, or a seekable binary file, which is read from its start and left open.
    format: a key of `FORMATS`; by default it follows from the suffix of the path.
    input: what the numbers are; never guessed from the values.
    task: `multilabel` for labels (N, K) of zeros and ones.
    selection: names in the file; by default as in `recalib.files.column_names`.

    Raises
    ------
    InputError: the file does not exist, or its header is not valid.
    UnsupportedError: `FORMATS` does not contain the format.
    """
    check_choice("input", input, Input)
    if not isinstance(source, str | Path):
        reader = FORMATS[format_of(format, "")]
        return reader(source, input, task=task, selection=selection)
    path = Path(source)
    stream = open_file(path)  # first: a folder that does not exist has no suffix either
    try:
        reader = FORMATS[format_of(format, path.name)]
        return reader(stream, input, task=task, selection=selection, owned=True)
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
    selection: DataSelection = NO_SELECTION,
    labels: Literal["required"] = "required",
) -> LabelledData: ...


@overload
def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    selection: DataSelection = NO_SELECTION,
    labels: Literal["optional"],
) -> Data: ...


def read(
    source: str | Path | BinaryIO,
    *,
    format: str | None = None,
    input: Input = "logits",
    task: Task = "multiclass",
    selection: DataSelection = NO_SELECTION,
    labels: Literal["required", "optional"] = "required",
) -> Data:
    """Read all validation data: logits (N, K) in the file's dtype, and labels or None.

    Labels are (N,), or (N, K) for the task `multilabel`.

    Raises
    ------
    InputError: as `open_data`; or the values are not valid; or required labels are missing.
    TooLargeError: the data does not fit into memory.
    """
    with open_data(source, format=format, input=input, task=task, selection=selection) as file:
        if labels == "optional":
            return read_all(file)
        if file.has_labels:
            data = read_all(file)
            if data.labels is not None:
                return LabelledData(data.logits, data.labels, data.weights)
        raise InputError(
            "labels",
            found=f"a {file.name} file without labels",
            accepted='an array or column "labels" or "label", or label="name" with its name (of an '
            "npy file: the npy file of the labels)",
        )


def format_of(name: str | None, location: str) -> str:
    """Return a format by its name, or by the suffix of a location: a key of `FORMATS`.

    Raises
    ------
    UnsupportedError: `FORMATS` does not contain it.
    """
    suffix = PurePosixPath(location).suffix.lower()
    chosen = SUFFIXES.get(suffix) if name is None else name
    if chosen in FORMATS:
        return chosen
    found = repr(name) if name is not None else f"{location}, which ends in {suffix!r}"
    accepted = f"{', '.join(FORMATS)} (as {', '.join(SUFFIXES)})"
    if name is None and suffix in _PICKLES:
        accepted += (
            "; a pickle runs code when it is read: where you trust it, read it in Python and write "
            "numpy.savez('data.npz', logits=..., labels=...)"
        )
    raise UnsupportedError("format", found=found, accepted=accepted)
