"""`recalib audit`: list the audit trail, read from the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli import options
from recalib.cli.context import load_settings, open_registry
from recalib.reporting.terminal import show

if TYPE_CHECKING:
    from recalib.contract.events import AuditEntry


def audit(
    actor: Annotated[
        str | None, typer.Option(help="A key's name, oidc:SUBJECT, cli:USER or monitor.")
    ] = None,
    action: Annotated[str | None, typer.Option(help="An operation, such as set_alias.")] = None,
    model: Annotated[str | None, typer.Option(help="The model that the operation changed.")] = None,
    limit: Annotated[
        int, typer.Option(help="Number of entries, newest first.", min=1, max=100_000)
    ] = 100,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """List who did what to which object and when, newest first."""
    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, registry.reading() as tx:
        entries = tx.audit.page(None, limit, actor=actor, action=action, model=model)
    document = [{**entry.model_dump(), "at": entry.at.timestamp()} for entry in entries]
    show(document, *map(_describe, entries), json_output=json_output)


def _describe(entry: AuditEntry) -> str:
    at = entry.at.strftime("%Y-%m-%d %H:%M:%S")
    of_model = "" if entry.model in (None, entry.target) else f" of {entry.model}"
    refused = "" if entry.result == "done" else " (refused)"
    detail = f": {entry.detail}" if entry.detail else ""
    return f"{at}  {entry.actor}  {entry.action}{refused}  {entry.target}{of_model}{detail}"
