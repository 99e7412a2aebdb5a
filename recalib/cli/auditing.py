"""`recalib audit`: who did what. It asks the registry itself, not a server."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from recalib.cli.arguments import Json
from recalib.cli.operate import Database, Home, opened, settings_of
from recalib.terminal import print_json, say

__all__ = ["audit"]


def audit(
    actor: Annotated[
        str | None, typer.Option(help="A key's name, oidc:SUBJECT, cli:USER, monitor.")
    ] = None,
    action: Annotated[str | None, typer.Option(help="An operation, such as set_alias.")] = None,
    model: Annotated[str | None, typer.Option(help="The model that it was done to.")] = None,
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1, max=100_000)] = 100,
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Say who did what to which object and when, newest first."""
    with (
        opened(settings_of(home=home, database_url=database_url)) as registry,
        registry.reading() as tx,
    ):
        found = tx.audit.page(None, limit, actor=actor, action=action, model=model)
    if json_output:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        at = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        of = "" if one.model in (None, one.target) else f" of {one.model}"
        refused = "" if one.result == "done" else " (refused)"
        detail = f": {one.detail}" if one.detail else ""
        say(f"{at}  {one.actor}  {one.action}{refused}  {one.target}{of}{detail}")
