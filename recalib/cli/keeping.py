"""Commands for keeping a registry safe: backup, restore."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli.arguments import Json
from recalib.cli.operate import Database, Home, make_home, opened, settings_of, whoever
from recalib.terminal import print_json, progress, say, warn

if TYPE_CHECKING:
    from recalib.registry.backup import Manifest

__all__ = ["backup", "restore"]


def backup(
    to: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    leave_out_damaged: Annotated[
        bool,
        typer.Option("--leave-out-damaged", help="Go on without blobs that are lost or damaged."),
    ] = False,
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Write the whole registry, database and blobs, to one file, while servers go on.

    The file holds the keys that sign prediction ids: only its owner may read it.
    """
    from recalib.registry import backup as backups

    with (
        opened(settings_of(home=home, database_url=database_url)) as registry,
        progress("backup", quiet=json_output) as tell,
    ):
        manifest = backups.backup(registry, to, leave_out_damaged=leave_out_damaged, say=tell)
    size = to.stat().st_size
    if json_output:
        print_json({"file": str(to), "bytes": size, **_plain(manifest)})
        return
    for digest, what in manifest.left_out.items():
        warn(f"left out: blob {digest}, {what}")
    say(f"saved {_contents(manifest)} to {to}, {size} bytes")


def restore(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="A file that backup has written.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace whatever the registry holds.")
    ] = False,
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Fill an empty registry from a backup, of either database; servers and workers must be down.

    API keys and signing keys are as they were: those revoked since are good again.
    """
    from recalib.registry.restore import restore as restored

    settings = settings_of(home=home, database_url=database_url)
    make_home(settings.home)
    with opened(settings) as registry, progress("restore", quiet=json_output) as tell:
        manifest = restored(registry, source, actor=whoever(), force=force, say=tell)
    if json_output:
        print_json(_plain(manifest))
        return
    for digest, what in manifest.left_out.items():
        warn(f"the backup was made without blob {digest}, {what}")
    say(f"restored {_contents(manifest)}, as of {manifest.made_at}")


def _contents(manifest: Manifest) -> str:
    rows = sum(one.rows for one in manifest.tables.values())
    return (
        f"{rows} rows of {len(manifest.tables)} tables and "
        f"{len(manifest.blobs)} blobs of {sum(manifest.blobs.values())} bytes"
    )


def _plain(manifest: Manifest) -> dict[str, Any]:
    """Return what machines want to know of a manifest: counts, not a line for each blob."""
    found = asdict(manifest)
    kept = {name: found[name] for name in ("schema", "made_at", "database", "left_out")}
    return {
        **kept,
        "recalib": manifest.recalib,
        "rows": {name: one.rows for name, one in manifest.tables.items()},
        "blobs": len(manifest.blobs),
        "blob_bytes": sum(manifest.blobs.values()),
    }
