"""A whole registry in one file: every table as of one moment, and every blob that it names.

The file is a ZIP archive of tables as JSON lines (`recalib.registry.table_dump`), blobs under their
digests, and a manifest, which is written last. It holds nothing of either database's own form: what
was read from SQLite can be restored into PostgreSQL, and the other way round.

It is made while the registry is used. Blobs never change, so those are copied first, without
holding anybody up; the tables are then read in one snapshot, and what blobs they name besides are
copied after. A blob that was removed meanwhile, by retention, has its snapshot taken again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, Table, or_, select

import recalib
from recalib.errors import CorruptError, InputError, NotFoundError, UnavailableError
from recalib.registry import migrate
from recalib.registry.blobs import storage_errors
from recalib.registry.registry import Registry
from recalib.registry.table_dump import columns_of, read_rows, tables_of

__all__ = [
    "FORMAT",
    "MANIFEST",
    "VERSION",
    "Manifest",
    "Progress",
    "TableEntry",
    "backup",
    "blob_name",
    "named_blobs",
]

FORMAT = "recalib-backup"
VERSION = 1
MANIFEST = "manifest.json"
_CHUNK = 1 << 20
#: Snapshots that are taken before giving up, where each time a blob of it is gone at once.
_MOST_SNAPSHOTS = 5

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TableEntry:
    """A table in the archive."""

    #: Its member's name.
    member: str
    columns: list[str]
    rows: int
    #: Of its lines, before compression.
    sha256: str


@dataclass
class Manifest:
    """What an archive holds."""

    format: str
    version: int
    #: The version of Recalib that has written it.
    recalib: str
    #: The revision of the schema that the tables are in.
    schema: str
    #: When the snapshot was taken, by this machine's clock; ISO 8601 in UTC.
    made_at: str
    #: The database that it comes from; any other will do.
    database: str
    #: By name, those that others refer to first.
    tables: dict[str, TableEntry] = field(default_factory=dict)
    #: Sizes in bytes by digest.
    blobs: dict[str, int] = field(default_factory=dict)
    #: What the tables name and the store did not have whole: digests, and what they were.
    left_out: dict[str, str] = field(default_factory=dict)


def backup(
    registry: Registry,
    target: Path,
    *,
    leave_out_damaged: bool = False,
    progress: Progress = lambda _: None,
) -> Manifest:
    """Write the whole registry to `target`, a new file that only its owner may read.

    Parameters
    ----------
    leave_out_damaged: go on without blobs that are missing or damaged, and note them.

    Raises
    ------
    InputError: `target` exists or cannot be written, or there is no registry.
    CorruptError: a blob that the registry names is missing or damaged.
    UnavailableError: the database or the blobs cannot be reached.
    """
    if registry.missing_database_file is not None:
        raise InputError(
            "home", found=f"no {registry.missing_database_file}", accepted="a registry"
        )
    with _new_file(target) as file, zipfile.ZipFile(file, "w") as archive:
        manifest = _Making(registry, archive, leave_out_damaged, progress).make()
        with archive.open(_member(MANIFEST, zipfile.ZIP_DEFLATED), "w") as member:
            member.write(json.dumps(asdict(manifest), indent=1).encode())
    return manifest


class _Making:
    """One backup in the making."""

    def __init__(
        self, registry: Registry, archive: zipfile.ZipFile, leave_out: bool, progress: Progress
    ) -> None:
        self._registry, self._archive = registry, archive
        self._leave_out, self._progress = leave_out, progress
        #: What the archive has, by digest.
        self._sizes: dict[str, int] = {}
        self._damaged: set[str] = set()

    def make(self) -> Manifest:
        """Write everything but the manifest."""
        with self._registry.reading() as tx:
            named = named_blobs(tx.connection, tables_of(tx.connection))
        self._copy(named)
        for number in range(_MOST_SNAPSHOTS):
            manifest, named = self._snapshot(number)
            absent = self._copy(named)
            # What nothing names any more was removed since the snapshot; the next has it no more.
            still = self._named_now(absent)
            lost = {one: what for one, what in absent.items() if one in still}
            if lost and not self._leave_out:
                one, what = next(iter(lost.items()))
                raise CorruptError(f"blob {one} of {what} is missing or damaged")
            if lost.keys() == absent.keys():
                manifest.blobs = {one: self._sizes[one] for one in named if one in self._sizes}
                manifest.left_out = lost
                return manifest
        raise UnavailableError("blobs are removed faster than they are copied; try again")

    def _snapshot(self, number: int) -> tuple[Manifest, dict[str, str]]:
        """Write all tables; return the manifest without blobs, and which those are."""
        with self._registry.reading() as tx:
            connection = tx.connection
            tables = tables_of(connection)
            schema = migrate.current(connection)
            if schema is None or not migrate.is_known(schema):
                raise InputError(
                    "schema",
                    found=f"a database at {schema or 'no schema'}",
                    accepted=f"one that this version can upgrade to {migrate.head()}",
                )
            made_at = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = Manifest(
                FORMAT, VERSION, recalib.__version__, schema, made_at, connection.dialect.name
            )
            for one in tables:
                self._progress(f"table {one.name}")
                member = f"tables/{number}/{one.name}.jsonl"
                manifest.tables[one.name] = self._table(connection, one, member)
            return manifest, named_blobs(connection, tables)

    def _table(self, connection: Connection, of: Table, member: str) -> TableEntry:
        count, found = 0, hashlib.sha256()
        with self._archive.open(_member(member, zipfile.ZIP_DEFLATED), "w", force_zip64=True) as to:
            for line in read_rows(connection, of):
                to.write(line)
                found.update(line)
                count += 1
        return TableEntry(member, columns_of(of), count, found.hexdigest())

    def _copy(self, named: dict[str, str]) -> dict[str, str]:
        """Copy the blobs that the archive lacks; return those that the store has not got whole."""
        absent = {}
        for number, (digest, what) in enumerate(named.items()):
            if digest in self._sizes:
                continue
            self._progress(f"blob {number + 1} of {len(named)}: {what}")
            size = None if digest in self._damaged else self._blob(digest)
            if size is None:
                absent[digest] = what
            else:
                self._sizes[digest] = size
        return absent

    def _blob(self, digest: str) -> int | None:
        """Copy a blob and return its size; None where it is not there, or not whole."""
        blobs, found, size = self._registry.blobs, hashlib.sha256(), 0
        try:
            source = blobs.open(digest)
        except NotFoundError:
            return None
        with (
            source,
            self._archive.open(_member(blob_name(digest)), "w", force_zip64=True) as to,
        ):
            while chunk := _read(source, blobs.url):
                to.write(chunk)
                found.update(chunk)
                size += len(chunk)
        if found.hexdigest() != digest:
            self._damaged.add(digest)
            return None
        return size

    def _named_now(self, absent: dict[str, str]) -> dict[str, str]:
        if not absent:
            return {}
        with self._registry.reading() as tx:
            return named_blobs(tx.connection, tables_of(tx.connection))


def named_blobs(connection: Connection, tables: list[Table]) -> dict[str, str]:
    """Return the digests of all blobs that the registry needs, each with what it is."""
    by_name = {one.name: one.c for one in tables}
    named: dict[str, str] = {}
    for name, what in (("datasets", "data set {}"), ("captures", "kept logits {}")):
        if name in by_name:
            of = by_name[name]
            label = of.name if name == "datasets" else of.id
            for digest, said in connection.execute(select(of.digest, label).order_by(of.id)):
                named.setdefault(digest, what.format(said))
    if "jobs" in by_name:
        named |= _of_jobs(connection, by_name["jobs"])
    return named


def _of_jobs(connection: Connection, jobs: Any) -> dict[str, str]:
    """Return what training runs have delivered, and what unfinished ones go on from."""
    unfinished = jobs.state.in_(("queued", "running"))
    statement = select(jobs.id, jobs.kind, jobs.checkpoint, jobs.result, unfinished).where(
        or_(jobs.checkpoint.is_not(None), jobs.result.is_not(None))
    )
    named = {}
    for job, kind, checkpoint, result, goes_on in connection.execute(statement):
        # Its `others` may be gone at any time, and are asked for by nobody.
        if goes_on and "digest" in (checkpoint or {}):
            named[checkpoint["digest"]] = f"the checkpoint of {kind} job {job}"
        for name, file in (result or {}).get("files", {}).items():
            named[file["digest"]] = f"{name} of {kind} job {job}"
    return named


def blob_name(digest: str) -> str:
    """Return the name of a blob's member."""
    return f"blobs/{digest[:2]}/{digest}"


def _member(name: str, compression: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.compress_type = compression
    # Whoever unpacks it by other means should be the only one to read it.
    found.external_attr = 0o600 << 16
    return found


def _read(source: IO[bytes], url: str) -> bytes:
    with storage_errors(url):
        return source.read(_CHUNK)


@contextmanager
def _new_file(target: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the name `target` at the end, and never somebody else's place.

    What a killed one leaves is called `.NAME.unfinished`; the next to the same name begins it anew.
    """
    if target.exists() or target.is_symlink():
        raise InputError("to", found=f"{target}, which exists", accepted="a new file")
    if not target.name:
        raise InputError("to", found=repr(str(target)), accepted="the name of a file")
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w+b") as file:
            _claim(file, target)
            try:
                yield file
                file.flush()
                os.fsync(descriptor)
                # Unlike a rename, a link fails where the name has been taken meanwhile.
                os.link(unfinished, target)
            finally:
                with suppress(OSError):
                    unfinished.unlink()
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        said = f"{target} ({error.strerror})"
        raise InputError("to", found=said, accepted="a new file on a disk with room") from error


def _claim(file: IO[bytes], target: Path) -> None:
    """Begin the file anew, unless another process is writing it."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError:
        said = f"{target}, which another backup is writing"
        raise InputError("to", found=said, accepted="a new file") from None
    os.fchmod(file.fileno(), 0o600)
    file.truncate(0)
