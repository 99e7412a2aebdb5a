"""`recalib ingest`: send labels from Kafka or from files to a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli import options
from recalib.cli.context import stop_on_signal
from recalib.errors import InputError
from recalib.reporting.terminal import say

if TYPE_CHECKING:
    from recalib.ingest import Kafka, Progress


def ingest(
    server: options.ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.")],
    source: Annotated[
        str | None,
        typer.Argument(
            help="Labels: .jsonl or .parquet; a file, a folder, a glob, or a URL such as "
            "s3://bucket/folder."
        ),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="File that lists the files that are done.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(help="Brokers of Kafka: host:port, separated by commas.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Topic of the labels.")] = None,
    group: Annotated[str | None, typer.Option(help="Consumer group.")] = None,
    dead_letters: Annotated[
        str | None, typer.Option(help="Topic for messages that are not stored.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Setting of librdkafka, such as security.protocol=ssl; repeatable."),
    ] = None,
    idle: Annotated[
        float | None, typer.Option(help="End after this many seconds without a message.", min=0)
    ] = None,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Send labels of predictions from Kafka, or from files, to a server.

    A message, or a line of a .jsonl file, is {"prediction_id": "...", "label": ...}. Each label is
    stored once, however often it is read. Offsets are committed, and files are listed in the
    manifest, after the server has stored their labels. With --json, each line is the progress.
    """
    from recalib.client import Client
    from recalib.ingest import ingest_files, ingest_kafka

    if (source is None) == (kafka is None):
        raise InputError("source", found="both or neither", accepted="files, or --kafka")
    unused: dict[str, Any] = {"manifest": manifest}
    if kafka is None:
        unused = {"topic": topic, "group": group, "dead-letters": dead_letters}
        unused |= {"option": option or None, "idle": idle}
    for name, value in unused.items():
        if value is not None:
            accepted = "it with --kafka only" if kafka is None else "it with files only"
            raise InputError(name, found=f"--{name}", accepted=accepted)
    place = None if kafka is None else _kafka(kafka, topic, group, dead_letters, option or [])

    def report(progress: Progress) -> None:
        if json_output:
            typer.echo(json.dumps(progress.to_dict()))

    with stop_on_signal() as stopped, Client(server, api_key=key) as client:
        common: dict[str, Any] = {"is_stopped": stopped.is_set, "report": report}
        if place is not None:
            progress = ingest_kafka(client, model, place, idle_seconds=idle, **common)
        else:
            progress = ingest_files(client, model, source or "", manifest=manifest, **common)
    if not json_output:
        outcomes = ", ".join(f"{count} {name}" for name, count in progress.labels.items())
        kind = "messages" if source is None else "files"
        say(f"{progress.items} {kind}: {outcomes or 'no labels'}; {progress.malformed} malformed")


def _kafka(
    brokers: str, topic: str | None, group: str | None, dead_letters: str | None, pairs: list[str]
) -> Kafka:
    from recalib.ingest import Kafka

    if not topic or not group:
        missing = "topic" if not topic else "group"
        raise InputError(missing, found="nothing", accepted=f"--{missing} with --kafka")
    settings = {}
    for text in pairs:
        name, separator, value = text.partition("=")
        if not separator:
            raise InputError("option", found=repr(text), accepted="NAME=VALUE")
        settings[name] = value
    return Kafka(brokers, topic, group, dead_letters, settings)
