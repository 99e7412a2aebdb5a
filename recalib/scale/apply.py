"""Calibrate data in many files into a Parquet data set."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from fsspec.utils import glob_translate

import recalib
from recalib.calibrator import Calibrator
from recalib.core.array_bytes import array_digest
from recalib.core.executors import open_workers
from recalib.core.lazy_import import LazyModule
from recalib.errors import ConflictError, InputError
from recalib.files import DataFile, Input
from recalib.files.answers import arrow_column
from recalib.files.fragments import (
    Fragment,
    Source,
    file_errors,
    filesystem_of,
    glob_folder,
    list_fragments,
    no_rows,
    none_if_empty,
    source_names,
)
from recalib.sets.rejection import accepts

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

#: Name of the file that describes the parts; readers of Parquet data sets ignore it.
MANIFEST = "_manifest.json"
_VERSION = 1
#: File systems where an upload appears at its end, and renaming copies the object.
_OBJECT_STORES = {"s3", "gs"}
#: Bytes of probabilities in a row group, about.
_GROUP_BYTES = 32 << 20

#: Called with the number of finished parts and the number of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Applied:
    """What `apply` has written.

    `rows` and `parts` count the whole data set, `resumed` the parts of an earlier run.
    """

    output: str
    rows: int
    classes: int
    parts: int
    resumed: int


def apply(
    calibrator: Calibrator,
    source: Source,
    output: str | os.PathLike[str],
    *,
    input: Input | None = None,
    format: str | None = None,
    cluster: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Applied:
    """Write calibrated probabilities as a Parquet data set, one part for each fragment with rows.

    A part has the columns `probabilities`, lists of K float32, `labels` if the file has them, and
    if the calibrator has these thresholds `sets`, lists of K truth values, and `accepted`, with the
    rows in their order. Parts are written whole or not at all. The same call resumes a run that was
    stopped: finished parts stay. `_manifest.json` lists the parts with their sources.

    Parameters
    ----------
    source, format: as in `recalib.files.fragments.list_fragments`.
    output: a folder, which may be a URL; every worker can write to it. It is new, empty, or has
        parts of the same call.
    input: what the files hold; by default what the calibrator was fitted on.
    cluster: as in `recalib.core.executors`; None: this process.
    progress: called after each part.

    Raises
    ------
    InputError: a file cannot be read or has invalid values; the message names the fragment. The
        output is in a folder of the source, whose next use would read the parts.
    ConflictError: the folder has other files, or parts of another call.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> recalib.scale.apply(calibrator, ["val.npz", "test.npz"], "calibrated").rows
    800
    """
    if calibrator.is_multilabel:
        raise InputError("task", found="multilabel", accepted="multiclass, in several files")
    kind: Input = input or calibrator.card.input
    fragments = list_fragments(source, format=format)
    output = os.fspath(output)
    folder = output.rstrip("/")
    _check_outside(folder, source)
    manifest = {
        "version": _VERSION,
        "recalib": recalib.__version__,
        "calibrator": array_digest(calibrator.card.to_json(), calibrator.parameters),
        "input": kind,
        "fragments": [fragment.name for fragment in fragments],
        "file_versions": [fragment.version for fragment in fragments],
    }
    finished = _prepare(folder, manifest)
    work = partial(none_if_empty, partial(_apply_fragment, calibrator, kind, folder))
    names = [_part_name(index) for index in range(len(fragments))]
    tasks = [(n, f) for n, f in zip(names, fragments, strict=True) if n not in finished]
    done = resumed = len(fragments) - len(tasks)
    with open_workers(cluster) as workers:
        for (name, _), part in zip(tasks, workers.map(work, tasks), strict=True):
            done += 1
            if part is not None:
                finished.add(name)
            progress(done, len(fragments))
    parts: list[dict[str, Any]] = [
        {"file": name, "source": fragment.name, "rows": _rows(f"{folder}/{name}")}
        for name, fragment in zip(names, fragments, strict=True)
        if name in finished
    ]
    if not parts:
        raise no_rows(fragments)
    _write(f"{folder}/{MANIFEST}", json.dumps(manifest | {"parts": parts}, indent=2).encode())
    rows = sum(part["rows"] for part in parts)
    return Applied(output, rows, calibrator.card.classes, len(parts), resumed)


def _check_outside(folder: str, source: Source) -> None:
    """Raise `InputError` if the source would list the parts as its own files."""
    filesystem, output = filesystem_of(folder, "output")
    output = _real_path(filesystem, output)
    for name in source_names(source):
        of_source, path = filesystem_of(name)
        if of_source.protocol == filesystem.protocol and _lists(of_source, name, path, output):
            found = f"{folder}, which is in {name}"
            raise InputError("output", found=found, accepted="a folder outside the data")


def _lists(filesystem: Any, name: str, path: str, output: str) -> bool:
    """Return whether the source `name` lists files of the folder `output`."""
    before_wildcard = glob_folder(name, path)
    top = _real_path(filesystem, path if before_wildcard is None else before_wildcard).rstrip("/")
    inside = output.removeprefix(f"{top}/")
    if inside == output or any(part[:1] in (".", "_") for part in inside.split("/")):
        return False
    if before_wildcard is None:
        return True
    # A folder that matches is listed as a whole.
    pattern = re.compile(glob_translate(top + path[len(before_wildcard) :]))
    parts = inside.split("/")
    folders = ["/".join([top, *parts[:depth]]) for depth in range(1, len(parts) + 1)]
    return any(pattern.match(location) for location in [*folders, f"{output}/{_part_name(0)}"])


def _real_path(filesystem: Any, path: str) -> str:
    """Return a path, of a local file system without links and `..`."""
    return os.path.realpath(path or "/") if "file" in filesystem.protocol else path


def _prepare(folder: str, manifest: dict[str, Any]) -> set[str]:
    """Write the manifest into a new folder; return the names of the parts of an earlier run."""
    filesystem, path = filesystem_of(folder, "output")
    with file_errors(folder, "output"):
        filesystem.makedirs(path, exist_ok=True)
        entries = {name.rpartition("/")[2] for name in filesystem.find(path, maxdepth=1)}
    if MANIFEST not in entries:
        if entries:
            raise ConflictError(f"{folder} has files: name a new or an empty folder")
        _write(f"{folder}/{MANIFEST}", json.dumps(manifest, indent=2).encode())
        return set()
    with file_errors(folder, "output"):
        content = filesystem.cat_file(f"{path}/{MANIFEST}")
    try:
        earlier = json.loads(content)
        differing = [name for name, value in manifest.items() if earlier.get(name) != value]
    except (ValueError, AttributeError):
        raise ConflictError(f"{folder}/{MANIFEST} is not a manifest of this program") from None
    if differing:
        raise ConflictError(
            f"{folder} has parts of another run (different {', '.join(differing)}): name a new "
            "folder, or remove this folder"
        )
    for name in entries:
        if name.startswith(".part-") and name.endswith(".tmp"):  # of a run that was killed
            with file_errors(folder, "output"):
                filesystem.rm_file(f"{path}/{name}")
    return {name for name in entries if name.startswith("part-")}


def _apply_fragment(
    calibrator: Calibrator, kind: Input, folder: str, task: tuple[str, Fragment]
) -> str:
    """Write the part of a fragment; return its name."""
    name, fragment = task
    with fragment.open(kind) as file, _atomic_file(f"{folder}/{name}") as stream:
        batches = _batches(calibrator, kind, file)
        first = next(batches)
        # Probabilities rarely repeat; to try a dictionary takes longer than the map.
        options = {"use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
        with pq.ParquetWriter(stream, first.schema, **options) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
    return name


def _batches(calibrator: Calibrator, kind: Input, file: DataFile) -> Iterator[Any]:
    """Yield record batches of equal sizes: each becomes one row group."""
    for chunk in file.chunks(_GROUP_BYTES):
        p = calibrator.predict(chunk.logits, input=kind).astype(np.float32, copy=False)
        arrays = {"probabilities": p}
        if chunk.labels is not None:
            arrays["labels"] = chunk.labels
        if calibrator.card.sets is not None:
            arrays["sets"] = calibrator.sets_of(p, calibrator.to_logits(chunk.logits, kind))
        if calibrator.card.rejection is not None:
            arrays["accepted"] = accepts(p, calibrator.card.rejection)
        yield pa.record_batch({name: arrow_column(array) for name, array in arrays.items()})


def _part_name(index: int) -> str:
    return f"part-{index:05d}.parquet"


def _rows(location: str) -> int:
    filesystem, path = filesystem_of(location, "output")
    with file_errors(location, "output"), filesystem.open(path, "rb") as stream:
        return int(pq.read_metadata(stream).num_rows)


def _write(location: str, content: bytes) -> None:
    with _atomic_file(location) as stream:
        stream.write(content)


@contextmanager
def _atomic_file(location: str) -> Iterator[Any]:
    """Yield a temporary file, and publish it at the end; after an error it is removed.

    A local file is uploaded to an object store, other file systems have a file to rename.
    """
    filesystem, path = filesystem_of(location, "output")
    if not _OBJECT_STORES.isdisjoint(filesystem.protocol):
        with tempfile.NamedTemporaryFile(prefix="recalib-") as file:
            yield file
            file.flush()
            with file_errors(location, "output"):
                filesystem.put_file(file.name, path)
        return
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"
    try:
        with file_errors(location, "output"):
            stream = filesystem.open(temporary, "wb")
        with stream:
            yield stream
        with file_errors(location, "output"):
            filesystem.mv(temporary, path)
    except BaseException:
        with suppress(Exception):
            filesystem.rm_file(temporary)
        raise
