"""`recalib backup`: save the registry to one file, once or on a schedule."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli.arguments import JsonOutput
from recalib.cli.context import (
    DatabaseOption,
    HomeOption,
    current_actor,
    exit_on_sigterm,
    load_settings,
    open_registry,
)
from recalib.errors import InputError, RecalibError, UnavailableError
from recalib.observability import logs
from recalib.reporting.terminal import print_json, progress, say, warn
from recalib.settings.effective import redact

if TYPE_CHECKING:
    from pyrage.x25519 import Identity

    from recalib.registry.backup import BackupManifest
    from recalib.settings import Settings

_LOG = logging.getLogger(__name__)
_HOUR_SECONDS = 3600.0
#: The wait after a failed backup of a schedule.
_RETRY_SECONDS = 600.0
#: URIs in a message.
_MAX_URIS = 5
#: Fields of a manifest that its summary has as they are.
_SUMMARY = ("schema", "made_at", "database", "left_out", "references")

KeyFileOption = Annotated[
    Path | None,
    typer.Option(help="A file with the key of an encrypted backup (recalib backup-key)."),
]


def backup(
    to: Annotated[
        Path,
        typer.Argument(help="The new file; or a folder, where the file is named after the time."),
    ],
    key_file: KeyFileOption = None,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Remove all but this many backups of the folder.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.01, help="Repeat, with this many hours between backups.")
    ] = None,
    leave_out_damaged: Annotated[
        bool,
        typer.Option("--leave-out-damaged", help="Leave out blobs that are missing or damaged."),
    ] = False,
    home: HomeOption = None,
    database_url: DatabaseOption = None,
    json_output: JsonOutput = False,
) -> None:
    """Save the registry to one file.

    The file holds the database and all blobs, but no files of data sets by reference. Servers may
    run meanwhile. The file also holds the keys that sign prediction ids, so only its owner can read
    it. With --key-file it is encrypted, and `restore` refuses it if a byte has changed.
    """
    from recalib.registry.backup_encryption import read_key

    settings = load_settings(home=home, database_url=database_url)
    if (keep is not None or every is not None) and not to.is_dir():
        accepted = "a folder, for --keep and --every"
        raise InputError("to", found=str(to), accepted=accepted)
    key = None if key_file is None else read_key(key_file)
    if every is not None:
        _repeat(settings, to, key, keep, every, leave_out_damaged)
    file, manifest = _save(settings, to, key, keep, leave_out_damaged, quiet=json_output)
    size = file.stat().st_size
    if json_output:
        print_json({"file": str(file), "bytes": size, **manifest_summary(manifest)})
        return
    for digest, owner in manifest.left_out.items():
        warn(f"left out: blob {digest}, {owner}")
    if manifest.references:
        warn(references_text(manifest))
    say(f"saved {manifest_text(manifest)} to {file}, {size} bytes")


def _save(
    settings: Settings,
    to: Path,
    key: Identity | None,
    keep: int | None,
    leave_out_damaged: bool,
    *,
    quiet: bool,
) -> tuple[Path, BackupManifest]:
    """Write one backup and remove old ones; return its path and manifest."""
    from recalib.registry.backup import backup as save
    from recalib.registry.backup_rotation import SCHEDULED_BACKUP, dated_path, remove_old

    file = dated_path(to, is_encrypted=key is not None) if to.is_dir() else to
    with open_registry(settings) as registry, progress("backup", quiet=quiet) as update:
        manifest = save(
            registry, file, key=key, leave_out_damaged=leave_out_damaged, progress=update
        )
        action = SCHEDULED_BACKUP if to.is_dir() else "backup"
        try:
            with registry.transaction() as tx:
                tx.audit.record(current_actor(), action, None, file.name)
        except UnavailableError as error:  # the backup is valid all the same
            warn(f"the audit trail does not have this backup: {redact(str(error))}")
    if keep is not None:
        remove_old(to, keep)
    return file, manifest


def _repeat(
    settings: Settings,
    folder: Path,
    key: Identity | None,
    keep: int | None,
    every: float,
    leave_out_damaged: bool,
) -> None:
    """Write a backup whenever the newest is `every` hours old, until SIGTERM."""
    from recalib.registry.backup_rotation import backup_age

    logs.configure(settings)
    with exit_on_sigterm():
        while True:
            # A restart does not make a backup before the next one is due.
            time.sleep(max(0.0, every * _HOUR_SECONDS - backup_age(folder)))
            try:
                file, manifest = _save(settings, folder, key, keep, leave_out_damaged, quiet=True)
            except (RecalibError, OSError) as error:
                fields = {"action": "backup_failed"}
                _LOG.error("the backup failed: %s", redact(str(error)), extra=fields)
                time.sleep(_RETRY_SECONDS)
                continue
            saved = {"action": "backup_saved", "file": str(file)}
            _LOG.info("saved %s", manifest_text(manifest), extra=saved)
            for digest, owner in manifest.left_out.items():
                _LOG.warning("left out: blob %s, %s", digest, owner, extra=saved)
            if manifest.references:
                _LOG.warning("%s", references_text(manifest), extra=saved)


def manifest_text(manifest: BackupManifest) -> str:
    """Return the size of a backup in words: rows, tables, blobs and bytes."""
    rows = sum(table.rows for table in manifest.tables.values())
    return (
        f"{rows} rows of {len(manifest.tables)} tables and "
        f"{len(manifest.blobs)} blobs of {sum(manifest.blobs.values())} bytes"
    )


def references_text(manifest: BackupManifest) -> str:
    """Return that the files of data sets by reference are not in a backup."""
    uris = manifest.references
    more = f", and {len(uris) - _MAX_URIS} more" if len(uris) > _MAX_URIS else ""
    return f"the backup does not have the files at {', '.join(uris[:_MAX_URIS])}{more}"


def manifest_summary(manifest: BackupManifest) -> dict[str, Any]:
    """Return a manifest as JSON values, with counts instead of a list of blobs."""
    fields = asdict(manifest)
    return {
        **{name: fields[name] for name in _SUMMARY},
        "recalib": manifest.recalib,
        "rows": {name: table.rows for name, table in manifest.tables.items()},
        "blobs": len(manifest.blobs),
        "blob_bytes": sum(manifest.blobs.values()),
    }
