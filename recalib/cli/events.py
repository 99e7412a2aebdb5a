"""`recalib events`: list or follow the events of a server."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli.arguments import JsonOutput, ServerUrl
from recalib.core.event_text import event_text
from recalib.reporting.terminal import say

if TYPE_CHECKING:
    from recalib.client import Event


def events(
    server: ServerUrl,
    model: Annotated[list[str] | None, typer.Option(help="Events of this model; repeatable.")] = (
        None
    ),
    type: Annotated[
        list[str] | None,
        typer.Option(help="A type, such as job.failed, or its first word; repeatable."),
    ] = None,
    after: Annotated[int | None, typer.Option(help="Events with a larger id.")] = None,
    limit: Annotated[
        int, typer.Option(help="Number of events, the newest; ignored with --follow.", min=1)
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print events as they happen, until Ctrl-C.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """List events of a server: states of monitoring, jobs, versions and promotions.

    The oldest is first. With --json, each line is an event.
    """
    from recalib.client import Client

    models, types = model or [], type or []
    with Client(server) as client:
        if follow:
            for event in client.events(models=models, types=types, after=after):
                _print(event, json_output)
            return
        listing = client.list_events(models=models, types=types, after=after or 0)
        for event in reversed(list(islice(listing, limit))):
            _print(event, json_output)


def _print(event: Event, json_output: bool) -> None:
    import msgspec

    if json_output:
        typer.echo(msgspec.json.encode(event))
        return
    at = event.at.strftime("%Y-%m-%d %H:%M:%S")
    say(f"{event.id}  {at}  {event_text(event.type, event.model, event.data)}")
