"""`recalib backup`: save the registry to one file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli.arguments import JsonOutput
from recalib.cli.context import DatabaseOption, HomeOption, load_settings, open_registry
from recalib.terminal import print_json, progress, say, warn

if TYPE_CHECKING:
    from recalib.registry.backup import Manifest

__all__ = ["backup", "manifest_summary", "manifest_text"]


def backup(
    to: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    leave_out_damaged: Annotated[
        bool,
        typer.Option("--leave-out-damaged", help="Leave out blobs that are missing or damaged."),
    ] = False,
    home: HomeOption = None,
    database_url: DatabaseOption = None,
    json_output: JsonOutput = False,
) -> None:
    """Save the registry to one file.

    The file holds the database and all blobs. Servers may run meanwhile. The file also holds the
    keys that sign prediction ids, so only its owner can read it.
    """
    from recalib.registry import backup as backups

    with (
        open_registry(load_settings(home=home, database_url=database_url)) as registry,
        progress("backup", quiet=json_output) as update,
    ):
        manifest = backups.backup(
            registry, to, leave_out_damaged=leave_out_damaged, progress=update
        )
    size = to.stat().st_size
    if json_output:
        print_json({"file": str(to), "bytes": size, **manifest_summary(manifest)})
        return
    for digest, owner in manifest.left_out.items():
        warn(f"left out: blob {digest}, {owner}")
    say(f"saved {manifest_text(manifest)} to {to}, {size} bytes")


def manifest_text(manifest: Manifest) -> str:
    """Return the size of a backup in words: rows, tables, blobs and bytes."""
    rows = sum(table.rows for table in manifest.tables.values())
    return (
        f"{rows} rows of {len(manifest.tables)} tables and "
        f"{len(manifest.blobs)} blobs of {sum(manifest.blobs.values())} bytes"
    )


def manifest_summary(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as JSON values, with counts instead of a list of blobs."""
    fields = asdict(manifest)
    return {
        **{name: fields[name] for name in ("schema", "made_at", "database", "left_out")},
        "recalib": manifest.recalib,
        "rows": {name: table.rows for name, table in manifest.tables.items()},
        "blobs": len(manifest.blobs),
        "blob_bytes": sum(manifest.blobs.values()),
    }
