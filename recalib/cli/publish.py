"""`recalib publish`: publish a calibrator on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import metrics_table, print_json, progress, say, warn

_PROMOTE: dict[str, Any] = {"if-better": "if_better", "always": True, "never": False}


def publish(
    calibrator: options.CalibratorFile,
    server: options.ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.")],
    dataset: Annotated[
        str | None, typer.Option(help="A data set of the model, to compare with the champion on.")
    ] = None,
    fitted_on: Annotated[
        Path | None,
        typer.Option(
            help="The file of the fit. Digests of its rows are sent, so that they are not compared."
        ),
    ] = None,
    scores: options.Scores = None,
    label: options.Label = None,
    separator: options.Separator = None,
    promote: Annotated[
        Literal["if-better", "always", "never"],
        typer.Option(help="Whether the version becomes the champion."),
    ] = "if-better",
    force: options.Force = False,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Publish a calibrator on a server.

    It becomes the next version of the model. The metrics of its card are shown as claims; the
    server compares it with the champion on rows that neither was fitted on. `--scores`, `--label`
    and `--separator` say how `--fitted-on` is read, as for `fit`.
    """
    from recalib.client import Client
    from recalib.core.card import Card
    from recalib.core.decoding import convert

    rows = _fitted_rows(calibrator, fitted_on, scores, label, separator)
    with Client(server, api_key=key) as client, progress("publish", quiet=json_output) as update:
        queued_job = client.publish(
            model, calibrator, dataset, fitted_on=rows, promote=_PROMOTE[promote], force=force
        )
        job = client.wait(queued_job, progress=lambda _, text: update(text))
        result = job.result or {}
        card = convert(client.get_calibrator(model, result["version"]).card, Card)
    if json_output:
        print_json({**result, "job": job.id, "card": card.to_dict()})
        return
    warn(*result["warnings"])
    claimed = {} if card.claimed is None else card.claimed.metrics.get("after", {})
    if claimed:
        say(metrics_table({"claimed": claimed}, "metrics that the card claims"))
    if card.metrics and card.selection is not None:
        title = f"measured on {card.selection.rows} rows of {card.selection.dataset}"
        say(metrics_table(card.metrics, title))
    state = "is the champion" if result["promoted"] else "is not the champion"
    say(f"version {result['version']} of {model} {state}: {result['reason']}")


def _fitted_rows(
    path: Path, fitted_on: Path | None, scores: str | None, label: str | None, separator: str | None
) -> Any:
    """Return the rows of the fit from a file with names that the options say, else the file."""
    from recalib.api import load
    from recalib.files import DataSelection

    selection = arguments.selection_of(scores, label, separator=separator)
    if selection == DataSelection():
        return fitted_on
    if fitted_on is None:
        found = "options that name parts of the file of --fitted-on, without it"
        raise InputError("fitted-on", found=found, accepted="the file of the rows of the fit")
    card = load(path).card
    names, kind, task = card.labels, card.input, card.task
    return arguments.read_file(
        fitted_on, selection, names, input=kind, task=task, labels="optional"
    ).logits
