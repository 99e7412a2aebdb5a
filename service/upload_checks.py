"""Open an uploaded file, and check its rows. Runs in the reader process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from recalib.core.decoding import convert
from recalib.core.segment_columns import segment_masks
from recalib.errors import InputError
from recalib.files import DataFile, DataSelection, Input, Task, open_data
from recalib.files.base import translate_errors
from recalib.files.parquet import is_parquet, value_count
from recalib.files.raw_arrays import size_of
from recalib.files.read_columns import named_columns
from recalib.replay import LogSummary, ModelLog, ModelLogOptions

#: Values of all columns of segments: more do not fit into a page.
MAX_SEGMENTS = 200


def open_url(url: str) -> BinaryIO:
    """Return the file at an fsspec URL."""
    protocol, _, path = url.partition("://")
    if protocol == "file":
        return Path(path).open("rb")
    import fsspec  # only for buckets: it takes 60 ms to import

    return cast(BinaryIO, fsspec.filesystem(protocol, use_listings_cache=False).open(path, "rb"))


def check_classes(data: DataFile, input: Input, classes: int) -> None:
    """Raise `InputError` if the rows of a file have another K than `classes`."""
    if data.classes != classes:
        raise InputError(
            input, found=f"{data.classes} classes", accepted=f"{classes}, as the model has"
        )


@contextmanager
def _open_rows(
    url: str, format: str, input: Input, task: Task, class_names: tuple[str, ...] | None
) -> Iterator[tuple[BinaryIO, DataFile]]:
    selection = DataSelection.of_classes(class_names)
    options: dict[str, Any] = {"input": input, "task": task, "selection": selection}
    with open_url(url) as file, open_data(file, format=format, **options) as data:
        yield file, data


def count_numbers(
    url: str,
    format: str,
    input: Input,
    task: Task = "multiclass",
    class_names: tuple[str, ...] | None = None,
) -> int:
    """Return N K of the file at an fsspec URL, as its header says; its bytes if it does not.

    Raises
    ------
    InputError: the header is not valid.
    """
    with _open_rows(url, format, input, task, class_names) as (file, data):
        return size_of(file) if data.rows is None else data.rows * data.classes


def count_log_numbers(url: str) -> int:
    """Return the values of the log at an fsspec URL, as its footer says, or the bytes of CSV.

    Raises
    ------
    InputError: a Parquet file is damaged.
    """
    with open_url(url) as file, translate_errors("parquet"):
        return value_count(file) if is_parquet(file) else size_of(file)


def check_columns(url: str, format: str, names: list[str], rows: int) -> None:
    """Read columns of segments of the file at an fsspec URL.

    Raises
    ------
    InputError: a column is missing, its values are no segments, or there are none or more than
        `MAX_SEGMENTS`.
    """
    with open_url(url) as file:
        count = len(segment_masks(named_columns(file, format, names), rows))
    if not 0 < count <= MAX_SEGMENTS:
        found = f"{count} values of {', '.join(names)}"
        raise InputError("segments", found=found, accepted=f"1 to {MAX_SEGMENTS} values")


def count_rows(
    url: str,
    format: str,
    input: Input,
    classes: int,
    task: Task = "multiclass",
    class_names: tuple[str, ...] | None = None,
) -> int:
    """Check every row of the file at an fsspec URL, with or without labels; return N.

    Raises
    ------
    InputError: the file is not valid, or has another K than `classes`.
    """
    with _open_rows(url, format, input, task, class_names) as (_, data):
        check_classes(data, input, classes)
        return sum(len(chunk.logits) for chunk in data.chunks())


def survey_log(url: str, options: dict[str, Any]) -> LogSummary:
    """Check every row of the log at an fsspec URL; return what it holds.

    Parameters
    ----------
    options: the fields of `ModelLogOptions`.

    Raises
    ------
    InputError: the log is not valid for the model, see `ModelLog`.
    """
    with ModelLog(open_url(url), convert(options, ModelLogOptions)) as log:
        return log.survey()
