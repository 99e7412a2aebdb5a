"""Back up a registry into one file: a snapshot of all tables, and all blobs that they refer to.

The file is a ZIP archive: tables as JSON lines (`recalib.registry.table_dump`), blobs by digest,
and a manifest, which is written last. It does not depend on the database: a backup of SQLite can be
restored into PostgreSQL, and vice versa. `deploy/backup.sh` encrypts it.

A backup works while the registry is in use. Blobs never change, so they are copied first, without
a transaction. Then the tables are read in one snapshot, and new blobs are copied. If retention has
removed a blob of the snapshot meanwhile, the snapshot is repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, Table, or_, select

import recalib
from recalib.errors import CorruptError, InputError, NotFoundError, UnavailableError
from recalib.files.atomic_write import sync
from recalib.registry import migrate
from recalib.registry.registry import Registry
from recalib.registry.table_dump import columns_of, dump_lines, tables_of

FORMAT = "recalib-backup"
VERSION = 1
MANIFEST = "manifest.json"
#: Largest number of snapshots; a snapshot is repeated if one of its blobs was removed.
_MAX_SNAPSHOTS = 5

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TableEntry:
    """A table in the archive."""

    #: The name of the member of the archive.
    member: str
    columns: list[str]
    rows: int
    #: SHA-256 of the lines, before compression.
    sha256: str


@dataclass
class BackupManifest:
    """The contents of an archive."""

    format: str
    version: int
    #: The version of Recalib that wrote it.
    recalib: str
    #: The schema revision of the tables.
    schema: str
    #: Time of the snapshot by this machine's clock; ISO 8601 in UTC.
    made_at: str
    #: The database of the backup, for information: it can be restored into either database.
    database: str
    #: By name, referenced tables first.
    tables: dict[str, TableEntry] = field(default_factory=dict)
    #: Sizes in bytes by digest.
    blobs: dict[str, int] = field(default_factory=dict)
    #: Missing or damaged blobs: a description by digest.
    left_out: dict[str, str] = field(default_factory=dict)
    #: URIs of data sets by reference, whose files are not in the archive.
    references: list[str] = field(default_factory=list)


def backup(
    registry: Registry,
    target: Path | IO[bytes],
    *,
    leave_out_damaged: bool = False,
    progress: Progress = lambda _: None,
) -> BackupManifest:
    """Write the registry to `target`: a new file that only its owner may read, or a stream.

    Parameters
    ----------
    leave_out_damaged: leave out missing and damaged blobs and list them in the manifest.

    Raises
    ------
    InputError: `target` exists or cannot be written, or there is no registry.
    CorruptError: a blob is missing or damaged.
    UnavailableError: the database or the blobs cannot be reached.
    """
    if registry.missing_database_file is not None:
        raise InputError(
            "home", found=f"no {registry.missing_database_file}", accepted="a registry"
        )
    with (
        _output(target) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        manifest = _Backup(registry, archive, leave_out_damaged, progress).write()
        with archive.open(_member(MANIFEST, zipfile.ZIP_DEFLATED), "w") as member:
            member.write(json.dumps(asdict(manifest), indent=1).encode())
    return manifest


class _Backup:
    """A backup in progress."""

    def __init__(
        self, registry: Registry, archive: zipfile.ZipFile, leave_out: bool, progress: Progress
    ) -> None:
        self._registry, self._archive = registry, archive
        self._leave_out, self._progress = leave_out, progress
        #: Sizes of the blobs in the archive, by digest.
        self._sizes: dict[str, int] = {}
        self._damaged: set[str] = set()

    def write(self) -> BackupManifest:
        """Write everything except the manifest."""
        self._copy(self._named())
        for number in range(_MAX_SNAPSHOTS):
            manifest, named = self._snapshot(number)
            absent = self._copy(named)
            # A blob without a reference was removed since the snapshot; the next has no such blob.
            current = self._named() if absent else {}
            missing_blobs = {digest: owner for digest, owner in absent.items() if digest in current}
            if missing_blobs and not self._leave_out:
                digest, owner = next(iter(missing_blobs.items()))
                raise CorruptError(f"blob {digest} of {owner} is missing or damaged")
            if missing_blobs.keys() == absent.keys():
                sizes = self._sizes
                manifest.blobs = {digest: sizes[digest] for digest in named if digest in sizes}
                manifest.left_out = missing_blobs
                return manifest
        raise UnavailableError("blobs are removed faster than they are copied; try again")

    def _snapshot(self, number: int) -> tuple[BackupManifest, dict[str, str]]:
        """Write all tables; return the manifest without blobs, and the blobs to copy."""
        with self._registry.reading() as tx:
            connection = tx.connection
            tables = tables_of(connection)
            schema = migrate.current(connection)
            if schema is None or not migrate.is_known(schema):
                raise InputError(
                    "schema",
                    found=f"a database at {schema or 'no schema'}",
                    accepted=f"a schema that this version can upgrade to {migrate.head()}",
                )
            made_at = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = BackupManifest(
                FORMAT, VERSION, recalib.__version__, schema, made_at, connection.dialect.name
            )
            for table in tables:
                self._progress(f"table {table.name}")
                member = f"tables/{number}/{table.name}.jsonl"
                manifest.tables[table.name] = self._table(connection, table, member)
            manifest.references = _references(connection, tables)
            return manifest, named_blobs(connection, tables)

    def _table(self, connection: Connection, table: Table, member: str) -> TableEntry:
        count, checksum = 0, hashlib.sha256()
        with self._archive.open(_member(member, zipfile.ZIP_DEFLATED), "w", force_zip64=True) as to:
            for line in dump_lines(connection, table):
                to.write(line)
                checksum.update(line)
                count += 1
        return TableEntry(member, columns_of(table), count, checksum.hexdigest())

    def _copy(self, named: dict[str, str]) -> dict[str, str]:
        """Copy the blobs that the archive lacks; return the missing and damaged blobs."""
        absent = {}
        for number, (digest, owner) in enumerate(named.items()):
            if digest in self._sizes:
                continue
            self._progress(f"blob {number + 1} of {len(named)}: {owner}")
            size = None if digest in self._damaged else self._blob(digest)
            if size is None:
                absent[digest] = owner
            else:
                self._sizes[digest] = size
        return absent

    def _blob(self, digest: str) -> int | None:
        """Copy a blob and return its size; None if it is missing or damaged."""
        size = 0
        try:
            chunks = self._registry.blobs.read_chunks(digest)
            with self._archive.open(_member(blob_name(digest)), "w", force_zip64=True) as to:
                for chunk in chunks:
                    to.write(chunk)
                    size += len(chunk)
        except NotFoundError:
            return None
        except CorruptError:
            self._damaged.add(digest)
            return None
        return size

    def _named(self) -> dict[str, str]:
        with self._registry.reading() as tx:
            return named_blobs(tx.connection, tables_of(tx.connection))


def named_blobs(connection: Connection, tables: list[Table]) -> dict[str, str]:
    """Return the digests of all blobs that the registry refers to, with a description."""
    by_name = {table.name: table.c for table in tables}
    named: dict[str, str] = {}
    for name, description in (("datasets", "data set {}"), ("captures", "sampled logits {}")):
        if name in by_name:
            columns = by_name[name]
            label = columns.name if name == "datasets" else columns.id
            statement = select(columns.digest, label).order_by(columns.id)
            for digest, value in connection.execute(statement):
                named.setdefault(digest, description.format(value))
    if "jobs" in by_name:
        named |= _job_blobs(connection, by_name["jobs"])
    return named


def _references(connection: Connection, tables: list[Table]) -> list[str]:
    """Return the URIs of data sets by reference."""
    columns = {table.name: table.c for table in tables}.get("datasets")
    if columns is None or "uri" not in columns:  # an older schema
        return []
    statement = (
        select(columns.uri)
        .where(columns.uri.is_not(None), columns.deleted_at.is_(None))
        .order_by(columns.id)
    )
    return list(dict.fromkeys(connection.scalars(statement)))


def _job_blobs(connection: Connection, jobs: Any) -> dict[str, str]:
    """Return the files of finished jobs, and the checkpoints of unfinished ones."""
    unfinished = jobs.state.in_(("queued", "running"))
    statement = select(jobs.id, jobs.kind, jobs.checkpoint, jobs.result, unfinished).where(
        or_(jobs.checkpoint.is_not(None), jobs.result.is_not(None))
    )
    named = {}
    for job, kind, checkpoint, result, is_unfinished in connection.execute(statement):
        # The `others` of a checkpoint may be removed at any time and are not needed.
        if is_unfinished:
            for digest in _checkpoint_blobs(checkpoint or {}):
                named[digest] = f"the checkpoint of {kind} job {job}"
        for name, file in (result or {}).get("files", {}).items():
            named[file["digest"]] = f"{name} of {kind} job {job}"
    return named


def _checkpoint_blobs(checkpoint: dict[str, Any]) -> list[str]:
    parts = (part["digest"] for part in checkpoint.get("parts", []))
    return [*(checkpoint[name] for name in ("digest", "upload") if name in checkpoint), *parts]


def blob_name(digest: str) -> str:
    """Return the name of a blob's member."""
    return f"blobs/{digest[:2]}/{digest}"


def _member(name: str, compression: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = compression
    # Other programs that unpack the archive then make files for the owner only.
    info.external_attr = 0o600 << 16
    return info


@contextmanager
def _output(target: Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the file or the stream; an error of writing it is an `InputError`."""
    try:
        with _new_file(target) if isinstance(target, Path) else nullcontext(target) as file:
            yield file
            file.flush()
    except OSError as error:
        name = target if isinstance(target, Path) else "a stream"
        accepted = "a new file, or a stream, with space for the backup"
        raise InputError("to", found=f"{name} ({error.strerror})", accepted=accepted) from error


@contextmanager
def _new_file(target: Path) -> Iterator[IO[bytes]]:
    """Yield a file that gets the name `target` at the end; never overwrite a file.

    A killed backup leaves `.NAME.unfinished`; the next backup to the same name overwrites it.
    """
    if target.exists() or target.is_symlink():
        raise InputError("to", found=f"{target}, which exists", accepted="a new file")
    if not target.name:
        raise InputError("to", found=repr(str(target)), accepted="the name of a file")
    unfinished = target.with_name(f".{target.name}.unfinished")
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w+b") as file:
        _claim(file, target)
        try:
            yield file
            file.flush()
            os.fsync(descriptor)
            # Unlike a rename, a link fails if the name has been taken meanwhile.
            os.link(unfinished, target)
        finally:
            with suppress(OSError):
                unfinished.unlink()
    sync(target.parent)


def _claim(file: IO[bytes], target: Path) -> None:
    """Lock and empty the file; `InputError` if another process is writing it."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError:
        found = f"{target}, which another backup is writing"
        raise InputError("to", found=found, accepted="a new file") from None
    os.fchmod(file.fileno(), 0o600)
    file.truncate(0)
