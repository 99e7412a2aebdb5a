"""`recalib models`: list and search the models of a server."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from recalib.cli.arguments import JsonOutput, ServerUrl
from recalib.reporting.terminal import print_json, say


def models(
    server: ServerUrl,
    name: Annotated[
        str | None,
        typer.Option(help="Models with this text in their name, in any case.", show_default=False),
    ] = None,
    tag: Annotated[
        str | None, typer.Option(help="Models with this tag.", show_default=False)
    ] = None,
    state: Annotated[
        Literal["fresh", "unverified", "suspect", "stale"] | None,
        typer.Option(
            help="Models whose champion has this state of monitoring; unverified without one.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOutput = False,
) -> None:
    """List the models of a server, or those that match all options."""
    import msgspec

    from recalib.client import Client

    with Client(server) as client:
        items = list(client.list_models(name=name, tag=tag, state=state))
    if json_output:
        print_json(msgspec.to_builtins(items))
        return
    for model in items:
        unit = "classes" if model.task == "multiclass" else "labels"
        size, tags = f"{model.classes:,} {unit}", ", ".join(model.tags)
        say(f"{model.name}: {'; '.join(filter(None, (size, tags, model.description)))}")
    if not items:
        say("no models")
