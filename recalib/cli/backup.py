"""`recalib backup`: save the registry to one file, and `recalib record-backup`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli import options
from recalib.cli.context import current_actor, load_settings, open_registry
from recalib.errors import InputError, UnavailableError
from recalib.reporting.terminal import progress, show, warn
from recalib.settings.effective import redact

if TYPE_CHECKING:
    from recalib.registry.backup import BackupManifest

#: URIs in a message.
_MAX_URIS = 5
#: Fields of a manifest that its summary has as they are.
_SUMMARY = ("schema", "made_at", "database", "left_out", "references")


def backup(
    to: Annotated[Path, typer.Argument(help="The new file, or - for standard output.")],
    leave_out_damaged: Annotated[
        bool,
        typer.Option("--leave-out-damaged", help="Leave out blobs that are missing or damaged."),
    ] = False,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Save the registry to one file.

    The file holds the database and all blobs, but no files of data sets by reference. Servers may
    run meanwhile. The file also holds the keys that sign prediction ids, so only its owner can read
    it. deploy/backup.sh encrypts it.
    """
    from recalib.registry.backup import backup as save

    is_stream = str(to) == "-"
    if is_stream and (json_output or sys.stdout.isatty()):
        accepted = "the name of a file, for --json and on a terminal"
        raise InputError("to", found="standard output", accepted=accepted)
    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, progress("backup", quiet=json_output) as update:
        manifest = save(
            registry,
            sys.stdout.buffer if is_stream else to,
            leave_out_damaged=leave_out_damaged,
            progress=update,
        )
        try:
            with registry.transaction() as tx:
                tx.audit.record(current_actor(), "backup", None, to.name)
        except UnavailableError as error:  # the backup is valid all the same
            warn(f"the audit trail does not have this backup: {redact(str(error))}")
    size = 0 if is_stream else to.stat().st_size
    show(
        {"file": str(to), "bytes": size, **manifest_summary(manifest)},
        "" if is_stream else f"saved {manifest_text(manifest)} to {to}, {size} bytes",
        warnings=manifest_warnings(manifest, "left out:"),
        json_output=json_output,
    )


def record_backup(
    name: Annotated[str, typer.Argument(help="The name of the file.")],
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
) -> None:
    """Record in the audit trail that a scheduled backup is complete and verified.

    Servers export the time of the last as recalib_backup_timestamp_seconds; deploy/backup.sh does
    this last.
    """
    from recalib.registry.audit import SCHEDULED_BACKUP

    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, registry.transaction() as tx:
        tx.audit.record(current_actor(), SCHEDULED_BACKUP, None, name)


def manifest_text(manifest: BackupManifest) -> str:
    """Return the size of a backup in words: rows, tables, blobs and bytes."""
    rows = sum(table.rows for table in manifest.tables.values())
    return (
        f"{rows} rows of {len(manifest.tables)} tables and "
        f"{len(manifest.blobs)} blobs of {sum(manifest.blobs.values())} bytes"
    )


def manifest_warnings(manifest: BackupManifest, left_out: str) -> Iterator[str]:
    """Yield what a backup does not have: blobs, and files of data sets by reference."""
    for digest, owner in manifest.left_out.items():
        yield f"{left_out} blob {digest}, {owner}"
    if uris := manifest.references:
        more = f", and {len(uris) - _MAX_URIS} more" if len(uris) > _MAX_URIS else ""
        yield f"the backup does not have the files at {', '.join(uris[:_MAX_URIS])}{more}"


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
