"""`recalib doctor`: what an operator would look at first, looked at."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from recalib.cli.arguments import Json
from recalib.cli.operate import Database, Home, settings_of
from recalib.cli.shown_settings import shown
from recalib.terminal import print_json, say

__all__ = ["doctor"]

_MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


def doctor(
    home: Home = None,
    database_url: Database = None,
    show_settings: Annotated[
        bool, typer.Option("--settings", help="Show every setting and where it comes from instead.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Look at settings, database, schema, blobs, keys, jobs, monitoring, clock and GPU.

    Nothing is changed. Settings are those of `recalib serve`, from the same environment. Ends with
    1 where something has failed; a warning is something that will.
    """
    settings = settings_of(home=home, database_url=database_url)
    if show_settings:
        given = {"home": home, "database_url": database_url}
        effective = shown(settings, {name for name, one in given.items() if one is not None})
        if json_output:
            print_json(effective)
        else:
            for setting in effective:
                say(f"{setting['name']} = {setting['value']!r}  ({setting['from']})")
        return
    from recalib.cli.looking import findings

    found = list(findings(settings))
    if json_output:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            say(f"{_MARKS[one.state]}  {one.check}: {one.detail}")
    if any(one.state == "failed" for one in found):
        raise typer.Exit(1)
