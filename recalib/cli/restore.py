"""`recalib restore`: fill a registry from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recalib.cli import options
from recalib.cli.backup import manifest_summary, manifest_text, manifest_warnings
from recalib.cli.context import create_home, current_actor, load_settings, open_registry
from recalib.reporting.terminal import progress, show


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="FROM", help="A file that `backup` wrote, not a pipe.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the content of the registry.")
    ] = False,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Fill an empty registry from a backup.

    Servers and workers must be stopped. A backup of SQLite can be restored to PostgreSQL, and the
    reverse. Decrypt an encrypted backup first (age --decrypt). API keys and signing keys return to
    their state at the backup: a key that was revoked later is valid again.
    """
    from recalib.registry.restore import restore as restore_registry

    settings = load_settings(home=home, database_url=database_url)
    create_home(settings.home)
    with open_registry(settings) as registry, progress("restore", quiet=json_output) as update:
        manifest = restore_registry(
            registry, source, actor=current_actor(), force=force, progress=update
        )
    show(
        manifest_summary(manifest),
        f"restored {manifest_text(manifest)}, as of {manifest.made_at}",
        warnings=manifest_warnings(manifest, "the backup was made without"),
        json_output=json_output,
    )
