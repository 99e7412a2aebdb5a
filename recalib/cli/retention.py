"""`recalib retention`: show or change how long a server keeps the resources of a model."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from recalib.cli.arguments import JsonOutput, ModelName, ServerUrl
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, say

_DAY_SECONDS = 86_400.0


def retention(
    model: ModelName,
    server: ServerUrl,
    dataset_days: Annotated[
        float | None,
        typer.Option(help="Delete data sets this many days after their upload.", min=0),
    ] = None,
    version_days: Annotated[
        float | None,
        typer.Option(
            help="Delete versions this many days after their publication, if no alias has ever "
            "pointed at them.",
            min=0,
        ),
    ] = None,
    label_days: Annotated[
        float | None,
        typer.Option(help="Delete labels this many days after their predictions.", min=0),
    ] = None,
    json_output: JsonOutput = False,
) -> None:
    """Show how long a server keeps the resources of a model, or change it.

    Settings without an option stay; 0 days keep for ever.
    """
    from recalib.client import Client

    options = {
        "dataset_seconds": dataset_days,
        "version_seconds": version_days,
        "label_seconds": label_days,
    }
    for name, days in options.items():
        if days is not None and not math.isfinite(days):
            option = f"--{name.removesuffix('_seconds')}-days"
            raise InputError(option, found=str(days), accepted="a number; 0 keeps for ever")
    changes = {
        name: days * _DAY_SECONDS or None for name, days in options.items() if days is not None
    }
    with Client(server) as client:
        settings = client.get_model(model).retention
        if changes:
            # The server replaces the settings as a whole.
            settings = client.update_model(model, retention=settings | changes).retention
    if json_output:
        print_json(settings)
        return
    for name in options:
        say(f"{name.removesuffix('_seconds')}s: {_text(settings.get(name))}")


def _text(seconds: float | None) -> str:
    return "kept for ever" if seconds is None else f"deleted after {seconds / _DAY_SECONDS:g} days"
