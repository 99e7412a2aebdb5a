"""`recalib upload`: give a server validation data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recalib.cli.arguments import InputKind, JsonOutput, ServerUrl
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, progress, say


def upload(
    server: ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.", show_default=False)],
    name: Annotated[str, typer.Option(help="A name for the data set.", show_default=False)],
    data: Annotated[
        Path | None, typer.Argument(help="A file of logits with labels.", show_default=False)
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(
            help="Instead of a file: s3://..., gs://... or file:///..., a file, a folder or a glob "
            "that stays where it is, within RECALIB_DATASET_ROOTS of the server.",
            show_default=False,
        ),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            help="With --uri: the SHA-256 of the file; of several, of the output of sha256sum.",
            show_default=False,
        ),
    ] = None,
    input: InputKind = "logits",
    json_output: JsonOutput = False,
) -> None:
    """Upload a data set to a server, or refer to files that the server reads where they are."""
    import msgspec

    from recalib.client import Client

    if (data is None) == (uri is None):
        found = "neither a file nor --uri" if data is None else "a file and --uri"
        raise InputError("data", found=found, accepted="one of the two")
    if digest is not None and uri is None:
        raise InputError("digest", found="a digest and a file", accepted="a digest with --uri")
    with Client(server) as client, progress("upload", quiet=json_output) as update:
        if uri is not None:
            update("being checked")
            dataset = client.reference_dataset(model, name, uri, digest=digest, input=input)
        else:
            assert data is not None  # noqa: S101
            dataset = client.upload_dataset(
                model, name, data, input=input, progress=lambda _, text: update(text)
            )
    if json_output:
        print_json(msgspec.to_builtins(dataset))
        return
    place = "" if dataset.uri is None else f" at {dataset.uri}"
    say(f"data set {name} of {model}: {dataset.rows:,} rows, {dataset.size_bytes:,} bytes{place}")
