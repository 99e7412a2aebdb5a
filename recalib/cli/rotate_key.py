"""`recalib rotate-key`: replace the key that signs prediction ids."""

from __future__ import annotations

from typing import Annotated

import typer

from recalib.cli import options
from recalib.cli.context import current_actor, load_settings, open_registry
from recalib.reporting.terminal import show


def rotate_key(
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Revoke all earlier keys, as after a leak.")
    ] = False,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Sign prediction ids with a new key.

    Earlier ids stay valid until they expire. Servers use the new key within seconds.
    """
    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, registry.transaction() as tx:
        key = tx.signing_keys.rotate()
        revoked = tx.signing_keys.revoke() if revoke else 0
        detail = f"{revoked} before it are given up" if revoke else ""
        tx.audit.record(current_actor(), "rotate_key", None, f"key {key.number}", detail)
    text = f"ids of the {revoked} before it are refused from now on"
    if not revoke:
        text = "ids of the keys before it are good until they expire"
    document = {"key": key.number, "revoked": revoked}
    show(document, f"key {key.number} signs; {text}", json_output=json_output)
