"""Restore a registry from a backup (`recalib.registry.backup`).

All tables are checked before anything changes. Blobs are written first and checked; nothing refers
to them yet. Then one transaction creates the tables, fills them and upgrades the schema. Readers
see the old registry or the whole new one. A killed restore can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, case, func, null, select, update

from recalib.errors import ConflictError, CorruptError, InputError
from recalib.registry import migrate, tables
from recalib.registry.backup import (
    FORMAT,
    MANIFEST,
    VERSION,
    BackupManifest,
    Progress,
    TableEntry,
    blob_name,
)
from recalib.registry.clock import now
from recalib.registry.registry import Registry
from recalib.registry.table_dump import fill, tables_of

_CHUNK = 1 << 20
#: The first bytes of a file that `age` has encrypted.
_ENCRYPTED = b"age-encryption.org/v1\n"
#: Longest line of a table: a calibrator of some hundred megabytes.
_MAX_LINE_BYTES = 1 << 30
#: Added to the fences of unfinished jobs. It exceeds the number of claims since the backup, so no
#: fence of a worker that still runs is issued again.
_FENCES = 2**32
#: Added to the ids of later events. Consumers know ids that were issued after the backup, and would
#: skip new events with these ids.
_EVENT_IDS = 2**32
#: Tables that a server fills at its start; a registry with no other rows is empty.
_MADE_BY_SERVERS = {"alias_revision", "event_sequence", "signing_keys"}


def restore(
    registry: Registry,
    source: Path,
    *,
    actor: str = "restore",
    force: bool = False,
    progress: Progress = lambda _: None,
) -> BackupManifest:
    """Fill an empty registry from the archive `source`, of either database.

    Running jobs are requeued; the attempt does not count.

    Parameters
    ----------
    actor: the actor in the audit trail.
    force: replace the contents of the registry. Old blobs stay in the store.

    Raises
    ------
    InputError: `source` is not a backup, or a backup of a later version.
    CorruptError: it is damaged or incomplete; nothing has changed.
    ConflictError: the registry is in use, or it is not empty and `force` is not given.
    UnavailableError: the database or the blobs cannot be reached.
    """
    with _open(source) as archive:
        manifest = _manifest(archive, source)
        for name, part in manifest.tables.items():
            progress(f"checking table {name}")
            for _ in _lines(archive, name, part):
                pass
        registry.migrate()
        if registry.in_use():
            raise ConflictError("the database is in use: stop every server and worker first")
        with registry.reading() as tx:
            _check_empty(tx.connection, force)
        for number, (digest, size) in enumerate(manifest.blobs.items()):
            progress(f"blob {number + 1} of {len(manifest.blobs)}")
            _blob(registry, archive, digest, size)
        with registry.transaction() as tx:
            _check_empty(tx.connection, force)  # a server may have written since
            _tables(tx.connection, archive, manifest, progress)
            tx.audit.record(actor, "restore", None, source.name, f"as of {manifest.made_at}")
    return manifest


def read_manifest(source: Path) -> BackupManifest:
    """Return the manifest of an archive; raises as `restore`."""
    with _open(source) as archive:
        return _manifest(archive, source)


@contextmanager
def _open(source: Path) -> Iterator[zipfile.ZipFile]:
    accepted = "a file that `recalib backup` has written"
    try:
        # A pipe may end early, and the program that writes it reports this too late.
        if source.exists() and not source.is_file():
            found = f"{source}, which is no regular file"
            raise InputError("from", found=found, accepted=accepted)
        with source.open("rb") as file:
            start = file.read(len(_ENCRYPTED))
            if start == _ENCRYPTED:
                found = f"{source}, which is encrypted"
                accepted = "the file that `age --decrypt --identity KEY --output FILE` writes"
                raise InputError("from", found=found, accepted=accepted)
            if start[:2] != b"PK":
                raise InputError("from", found=f"{source}, which is none", accepted=accepted)
            with zipfile.ZipFile(file) as archive:
                yield archive
    except zipfile.BadZipFile as error:
        raise CorruptError(f"{source} is damaged, or only a part of a backup: {error}") from error
    except (zlib.error, EOFError) as error:
        raise CorruptError(f"{source} is damaged: {error}") from error
    except OSError as error:
        found = f"{source} ({error.strerror or error})"
        raise InputError("from", found=found, accepted=accepted) from error


def _manifest(archive: zipfile.ZipFile, source: Path) -> BackupManifest:
    try:
        data: dict[str, Any] = json.loads(archive.read(MANIFEST))
        if data["format"] != FORMAT:
            raise KeyError("format")
        if data["version"] <= VERSION:
            parts = {name: TableEntry(**part) for name, part in data.pop("tables").items()}
            manifest = BackupManifest(**data, tables=parts)
            if migrate.is_known(manifest.schema):
                return manifest
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        accepted = "a file that `recalib backup` has written"
        raise InputError("from", found=f"{source}, which is none", accepted=accepted) from error
    schema = data.get("schema")
    raise InputError(
        "from",
        found=f"a backup by Recalib {data.get('recalib')}, schema {schema}",
        accepted=migrate.development_advice(schema)
        or f"a backup up to schema {migrate.head()}; this backup needs a later Recalib",
    )


def _check_empty(connection: Connection, force: bool) -> None:
    revision = migrate.current(connection)
    if revision is not None and not migrate.is_known(revision):
        raise ConflictError(f"the database is at schema {revision}, a later version's")
    if force:
        return
    for table in tables_of(connection):
        count = connection.scalar(select(func.count()).select_from(table))
        if count and table.name not in _MADE_BY_SERVERS:
            raise ConflictError(
                f"the registry is not empty: {table.name} has {count} rows; --force replaces it all"
            )


def _blob(registry: Registry, archive: zipfile.ZipFile, digest: str, size: int) -> None:
    name = blob_name(digest)
    if name not in archive.NameToInfo:
        raise CorruptError(f"the backup lacks blob {digest}, which its manifest names")
    with archive.open(name) as source, registry.blobs.writer() as blob:
        # Read at most one byte more than promised: packed data may unpack to any size.
        while chunk := source.read(min(_CHUNK, size - blob.size + 1)):
            blob.write(chunk)
            if blob.size > size:
                break
        if blob.size != size or blob.digest != digest:
            raise CorruptError(f"blob {digest} of the backup holds other bytes than it promises")
        blob.commit()


def _tables(
    connection: Connection, archive: zipfile.ZipFile, manifest: BackupManifest, progress: Progress
) -> None:
    migrate.rebuild(connection, manifest.schema)
    existing = {table.name: table for table in tables_of(connection)}
    if unknown := manifest.tables.keys() - existing.keys():
        raise CorruptError(f"the backup has tables that its schema has not: {sorted(unknown)}")
    for name, table in existing.items():
        connection.execute(table.delete())  # rows that migrations insert
        part = manifest.tables.get(name)
        if part is not None:
            progress(f"table {name}, {part.rows} rows")
            fill(connection, table, part.columns, _lines(archive, name, part))
    migrate.advance(connection)
    _requeue(connection)
    last = tables.event_sequence.c.last
    connection.execute(update(tables.event_sequence).values(last=last + _EVENT_IDS))


def _lines(archive: zipfile.ZipFile, name: str, part: TableEntry) -> Iterator[bytes]:
    """Yield the lines of a table; `CorruptError` at the end if the checksum differs."""
    if part.member not in archive.NameToInfo:
        raise CorruptError(f"the backup lacks its table {name}")
    checksum, count = hashlib.sha256(), 0
    with archive.open(part.member) as source:
        while line := source.readline(_MAX_LINE_BYTES):
            checksum.update(line)
            count += 1
            yield line
    if (checksum.hexdigest(), count) != (part.sha256, part.rows):
        raise CorruptError(f"the table {name} of the backup holds other rows than it promises")


def _requeue(connection: Connection) -> None:
    """Requeue running jobs, and raise the fences so that no fence is issued twice."""
    jobs = tables.jobs.c
    unfinished = jobs.state.in_(("queued", "running"))
    connection.execute(update(tables.jobs).where(unfinished).values(fence=jobs.fence + _FENCES))
    cancelled = jobs.cancel_requested
    connection.execute(
        update(tables.jobs)
        .where(jobs.state == "running")
        .values(
            state=case((cancelled, "cancelled"), else_="queued"),
            finished_at=case((cancelled, now()), else_=null()),
            attempts=jobs.attempts - 1,
            worker=None,
            lease_expires=None,
        )
    )
