"""`recalib webhooks`: send events of a server to URLs."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

import typer

from recalib.cli.arguments import JsonOutput, ServerUrl
from recalib.reporting.terminal import print_json, say

app = typer.Typer(
    help="Send events of a server to URLs: create, list, change and delete webhooks.",
    no_args_is_help=True,
)

WebhookId = Annotated[str, typer.Argument(help="The id of the webhook.", show_default=False)]


@app.command()
def create(
    url: Annotated[str, typer.Argument(help="The URL of the receiver.", show_default=False)],
    server: ServerUrl,
    model: Annotated[str | None, typer.Option(help="Events of this model only.")] = None,
    type: Annotated[
        list[str] | None,
        typer.Option(help="A type, such as job.failed, or its first word; repeatable."),
    ] = None,
    format: Annotated[
        Literal["recalib", "slack", "alertmanager"], typer.Option(help="Format of the messages.")
    ] = "recalib",
    json_output: JsonOutput = False,
) -> None:
    """Send future events to a URL; the secret that signs them is printed once."""
    from recalib.client import Client

    with Client(server) as client:
        webhook = client.create_webhook(url, model=model, types=type or [], format=format)
    if json_output:
        _print(webhook)
    else:
        say(f"{webhook.id}: {webhook.url}")
        say(f"secret: {webhook.secret}")


@app.command("list")
def list_(server: ServerUrl, json_output: JsonOutput = False) -> None:
    """List webhooks, with the reason if one is disabled."""
    from recalib.client import Client

    with Client(server) as client:
        webhooks = list(client.list_webhooks())
    if json_output:
        _print(webhooks)
        return
    for webhook in webhooks:
        model = webhook.model or "all models"
        types = ", ".join(webhook.types) or "all events"
        state = "enabled" if webhook.enabled else f"disabled: {webhook.reason}"
        say(f"{webhook.id}  {webhook.url}  {model}; {types}; {webhook.format}; {state}")


@app.command()
def enable(webhook: WebhookId, server: ServerUrl, json_output: JsonOutput = False) -> None:
    """Continue after the last event that the webhook was sent."""
    _change(webhook, server, json_output, enabled=True)


@app.command()
def disable(webhook: WebhookId, server: ServerUrl, json_output: JsonOutput = False) -> None:
    """Stop the webhook; its events wait until it is enabled."""
    _change(webhook, server, json_output, enabled=False)


@app.command("rotate-secret")
def rotate_secret(
    webhook: WebhookId,
    server: ServerUrl,
    overlap_hours: Annotated[
        float,
        typer.Option(
            help="How long the present secret signs too; 0 ends all previous secrets.",
            min=0,
            max=720,
        ),
    ] = 24.0,
    json_output: JsonOutput = False,
) -> None:
    """Replace the secret, and print the new one, once.

    Messages have signatures of both secrets for a time, in which the receiver changes its secret.
    """
    from recalib.client import Client

    with Client(server) as client:
        changed = client.rotate_webhook_secret(webhook, overlap_seconds=overlap_hours * 3600)
    if json_output:
        _print(changed)
        return
    say(f"secret: {changed.secret}")
    until = changed.previous_secrets_until
    end = "no previous secret signs"
    say(end if until is None else f"the previous one signs until {until:%Y-%m-%d %H:%M} UTC")


@app.command()
def delete(webhook: WebhookId, server: ServerUrl, json_output: JsonOutput = False) -> None:
    """Remove the webhook and its delivery log."""
    from recalib.client import Client

    with Client(server) as client:
        deleted = client.delete_webhook(webhook)
    if json_output:
        _print(deleted)
    else:
        say(f"{deleted.id} is deleted")


@app.command()
def deliveries(
    webhook: WebhookId,
    server: ServerUrl,
    state: Annotated[
        Literal["pending", "delivered", "dead"] | None, typer.Option(help="Only in this state.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Number of deliveries, the newest.", min=1)] = 100,
    json_output: JsonOutput = False,
) -> None:
    """List the deliveries of the webhook, newest events first."""
    from recalib.client import Client

    with Client(server) as client:
        items = list(islice(client.list_deliveries(webhook, state=state), limit))
    if json_output:
        _print(items)
        return
    for item in items:
        error = f": {item.error}" if item.error else ""
        say(f"{item.event_id}  {item.type}  {item.state} after {item.attempts} attempts{error}")


@app.command()
def redeliver(
    webhook: WebhookId,
    event: Annotated[int, typer.Argument(help="The id of the event.", show_default=False)],
    server: ServerUrl,
    json_output: JsonOutput = False,
) -> None:
    """Send an event again, also if it was delivered."""
    from recalib.client import Client

    with Client(server) as client:
        receiver = client.redeliver(webhook, event)
    if json_output:
        _print(receiver)
    else:
        say(f"event {event} is sent to {receiver.url} again")


def _change(webhook: str, server: str, json_output: bool, *, enabled: bool) -> None:
    from recalib.client import Client

    with Client(server) as client:
        changed = client.update_webhook(webhook, enabled=enabled)
    if json_output:
        _print(changed)
    else:
        say(f"{changed.id} is {'enabled' if changed.enabled else 'disabled'}")


def _print(value: Any) -> None:
    import msgspec

    print_json(msgspec.to_builtins(value))
