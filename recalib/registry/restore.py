"""Making a registry what a backup says it was (`recalib.registry.backup`).

Tables are checked before anything is changed. Blobs come first, which nothing names yet, each
checked as it is written; then one transaction makes the tables, fills them and brings them up to
this version's schema. Whoever looks sees the registry as it was before, or all of the other one.
After one that was killed, it is run again.
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
    Manifest,
    Progress,
    TableEntry,
    blob_name,
)
from recalib.registry.clock import now
from recalib.registry.registry import Registry
from recalib.registry.table_dump import fill, tables_of

__all__ = ["read_manifest", "restore"]

_CHUNK = 1 << 20
#: Longest line of a table: a calibrator of some hundred megabytes.
_LONGEST_LINE = 1 << 30
#: Added to the fences of unfinished jobs: more claims than there were since the backup, so that a
#: worker that lives on from then holds no number that is given out again.
_FENCES = 2**32
#: What a server makes for itself as it starts; a registry with no more than that is empty.
_MADE_BY_SERVERS = {"alias_revision", "signing_keys"}


def restore(
    registry: Registry,
    source: Path,
    *,
    actor: str = "restore",
    force: bool = False,
    progress: Progress = lambda _: None,
) -> Manifest:
    """Fill an empty registry from the archive `source`, of either database.

    Jobs that were running are queued again, without its counting as an attempt.

    Parameters
    ----------
    actor: who the audit trail says has done it.
    force: replace whatever the registry holds. Blobs that nothing names then stay in the store.

    Raises
    ------
    InputError: `source` is no backup, or that of a later version.
    CorruptError: it is cut short or damaged; nothing has been changed.
    ConflictError: the registry is in use, or holds something and `force` is not given.
    UnavailableError: the database or the blobs cannot be reached.
    """
    with _opened(source) as archive:
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
            _check_empty(tx.connection, force)  # a server may have begun to fill it since
            _tables(tx.connection, archive, manifest, progress)
            tx.audit.record(actor, "restore", None, source.name, f"as of {manifest.made_at}")
    return manifest


def read_manifest(source: Path) -> Manifest:
    """Return what an archive says that it holds; raises as `restore`."""
    with _opened(source) as archive:
        return _manifest(archive, source)


@contextmanager
def _opened(source: Path) -> Iterator[zipfile.ZipFile]:
    accepted = "a file that `recalib backup` has written"
    try:
        with source.open("rb") as file:
            if file.read(2) != b"PK":
                raise InputError("from", found=f"{source}, which is none", accepted=accepted)
            with zipfile.ZipFile(file) as archive:
                yield archive
    except zipfile.BadZipFile as error:
        raise CorruptError(f"{source} is damaged, or only a part of a backup: {error}") from error
    except (zlib.error, EOFError) as error:
        raise CorruptError(f"{source} is damaged: {error}") from error
    except OSError as error:
        said = f"{source} ({error.strerror or error})"
        raise InputError("from", found=said, accepted=accepted) from error


def _manifest(archive: zipfile.ZipFile, source: Path) -> Manifest:
    try:
        found: dict[str, Any] = json.loads(archive.read(MANIFEST))
        if found["format"] != FORMAT:
            raise KeyError("format")
        if found["version"] <= VERSION:
            parts = {name: TableEntry(**part) for name, part in found.pop("tables").items()}
            manifest = Manifest(**found, tables=parts)
            if migrate.is_known(manifest.schema):
                return manifest
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        accepted = "a file that `recalib backup` has written"
        raise InputError("from", found=f"{source}, which is none", accepted=accepted) from error
    schema = found.get("schema")
    raise InputError(
        "from",
        found=f"a backup by Recalib {found.get('recalib')}, schema {schema}",
        accepted=migrate.development_advice(schema)
        or f"a backup up to schema {migrate.head()}; this one needs a later Recalib",
    )


def _check_empty(connection: Connection, force: bool) -> None:
    revision = migrate.current(connection)
    if revision is not None and not migrate.is_known(revision):
        raise ConflictError(f"the database is at schema {revision}, a later version's")
    if force:
        return
    for one in tables_of(connection):
        count = connection.scalar(select(func.count()).select_from(one))
        if count and one.name not in _MADE_BY_SERVERS:
            raise ConflictError(
                f"the registry is not empty: {one.name} has {count} rows; --force replaces it all"
            )


def _blob(registry: Registry, archive: zipfile.ZipFile, digest: str, size: int) -> None:
    name = blob_name(digest)
    if name not in archive.NameToInfo:
        raise CorruptError(f"the backup lacks blob {digest}, which its manifest names")
    with archive.open(name) as source, registry.blobs.writer() as blob:
        # No more than was promised: what is packed may unpack to anything.
        while chunk := source.read(min(_CHUNK, size - blob.size + 1)):
            blob.write(chunk)
            if blob.size > size:
                break
        if blob.size != size or blob.digest != digest:
            raise CorruptError(f"blob {digest} of the backup holds other bytes than it promises")
        blob.commit()


def _tables(
    connection: Connection, archive: zipfile.ZipFile, manifest: Manifest, progress: Progress
) -> None:
    migrate.rebuild(connection, manifest.schema)
    there = {one.name: one for one in tables_of(connection)}
    if unknown := manifest.tables.keys() - there.keys():
        raise CorruptError(f"the backup has tables that its schema has not: {sorted(unknown)}")
    for name, of in there.items():
        connection.execute(of.delete())  # what migrations put there
        part = manifest.tables.get(name)
        if part is not None:
            progress(f"table {name}, {part.rows} rows")
            fill(connection, of, part.columns, _lines(archive, name, part))
    migrate.advance(connection)
    _put_back(connection)


def _lines(archive: zipfile.ZipFile, name: str, part: TableEntry) -> Iterator[bytes]:
    """Yield a table's lines; `CorruptError` at their end unless they are what was written."""
    if part.member not in archive.NameToInfo:
        raise CorruptError(f"the backup lacks its table {name}")
    found, count = hashlib.sha256(), 0
    with archive.open(part.member) as source:
        while line := source.readline(_LONGEST_LINE):
            found.update(line)
            count += 1
            yield line
    if (found.hexdigest(), count) != (part.sha256, part.rows):
        raise CorruptError(f"the table {name} of the backup holds other rows than it promises")


def _put_back(connection: Connection) -> None:
    """Queue what was running, and give no fence twice."""
    jobs = tables.jobs.c
    unfinished = jobs.state.in_(("queued", "running"))
    connection.execute(update(tables.jobs).where(unfinished).values(fence=jobs.fence + _FENCES))
    asked = jobs.cancel_requested
    connection.execute(
        update(tables.jobs)
        .where(jobs.state == "running")
        .values(
            state=case((asked, "cancelled"), else_="queued"),
            finished_at=case((asked, now()), else_=null()),
            attempts=jobs.attempts - 1,
            worker=None,
            lease_expires=None,
        )
    )
