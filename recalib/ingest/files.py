"""Labels from files of a folder or a bucket, each done once."""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recalib.client import Client
from recalib.errors import InputError
from recalib.files.fragments import file_errors, filesystem_of, list_files
from recalib.ingest.labels import STORED, Label, decode_labels, send
from recalib.ingest.progress import Progress

log = logging.getLogger(__name__)

SUFFIXES = (".jsonl", ".ndjson", ".parquet")
_COLUMNS = ("prediction_id", "label")
#: Labels of a request.
_MAX_LABELS = 10_000


def ingest_files(
    client: Client,
    model: str,
    source: str,
    *,
    manifest: Path | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    report: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Send the labels of files to a server; return what was done.

    `.jsonl` has a label on each line; `.parquet` has the columns `prediction_id` and `label`. A
    file that was read in part is read again; the server recognises its labels. Rows that are not
    labels, and labels that the server does not accept, are logged with their place.

    Parameters
    ----------
    source: a file, a folder, a glob or a URL of these.
    manifest: file with a line for each file that is done, which later calls skip. A file that has
        changed is read again.
    is_stopped: called between requests.
    report: called after each request.

    Raises
    ------
    InputError: nothing matches, or a file cannot be read.
    ServiceError: the server refuses the labels, as for a model that does not exist.
    """
    progress = Progress()
    versions = _read_manifest(manifest)
    for location, size, mark in list_files(source, SUFFIXES):
        if is_stopped():
            break
        version = {"size": size, "version": mark}
        if versions.get(location) == version:
            progress.skipped += 1
            continue
        rows = _rows(location, progress)
        while part := list(itertools.islice(rows, _MAX_LABELS)):
            outcomes = send(client, model, [label for _, label in part], is_stopped)
            for (row, _), outcome in zip(part, outcomes, strict=True):
                progress.labels[outcome.status] += 1
                if outcome.status not in STORED:
                    _log(location, row, f"{outcome.status}: {outcome.reason}")
            report(progress)
            if is_stopped():
                return progress
        progress.items += 1
        if manifest is not None:
            _append(manifest, {"file": location, **version})
        report(progress)
    return progress


def _rows(location: str, progress: Progress) -> Iterator[tuple[int, Label]]:
    """Yield the labels of a file with the numbers of their rows, from 1."""
    filesystem, path = filesystem_of(location)
    with file_errors(location), filesystem.open(path, "rb") as stream:
        rows = _parquet_rows(location, stream) if path.endswith(".parquet") else stream
        for number, row in enumerate(rows, start=1):
            if not row.strip():
                continue
            try:
                for label in decode_labels(row):
                    yield number, label
            except InputError as error:
                progress.malformed += 1
                _log(location, number, str(error))


def _parquet_rows(location: str, stream: Any) -> Iterator[bytes]:
    """Yield each row as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(stream)
        for name in _COLUMNS:
            if name not in file.schema_arrow.names:
                accepted = "columns prediction_id and label"
                raise InputError("data", found=f"{location} without {name}", accepted=accepted)
        columns = [name for name in file.schema_arrow.names if name in (*_COLUMNS, "group")]
        for batch in file.iter_batches(_MAX_LABELS, columns=columns):
            for row in batch.to_pylist():
                yield json.dumps(row, default=str).encode()
    except pa.ArrowException as error:
        accepted = "a Parquet file"
        raise InputError("data", found=f"{location}: {error}", accepted=accepted) from None


def _log(location: str, row: int, reason: str) -> None:
    fields = {"action": "label_rejected", "file": location, "row": row}
    log.error("A label of %s, row %d, is not stored: %s", location, row, reason, extra=fields)


def _read_manifest(manifest: Path | None) -> dict[str, dict[str, Any]]:
    """Return the versions of the files that are done."""
    if manifest is None or not manifest.exists():
        return {}
    versions = {}
    for line in manifest.read_text().splitlines():
        try:
            entry = json.loads(line)
            versions[entry.pop("file")] = entry
        except (ValueError, KeyError, AttributeError):
            # A line that was cut off by a crash: its file is read again.
            continue
    return versions


def _append(manifest: Path, entry: dict[str, Any]) -> None:
    with manifest.open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read() != b"\n":  # a line that was cut off by a crash
                stream.write(b"\n")
        stream.write(json.dumps(entry).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
