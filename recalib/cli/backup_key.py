"""`recalib backup-key`: print a new key for encrypted backups."""

from __future__ import annotations

import typer


def backup_key() -> None:
    """Print a new key for encrypted backups.

    Store the key in a file that only you can read, and a copy away from this machine: a backup
    cannot be restored without its key.
    """
    from recalib.registry.backup_encryption import new_key

    typer.echo(new_key())
