"""`recalib evaluation`: evaluate versions of a model on a server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli.arguments import JsonOutput, ServerUrl, check_output_path
from recalib.errors import InputError
from recalib.reporting.terminal import metrics_table, print_json, progress, say, warn

if TYPE_CHECKING:
    from recalib.client import VersionResult


def evaluation(
    server: ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.", show_default=False)],
    dataset: Annotated[
        str, typer.Option(help="The data set of the model to measure on.", show_default=False)
    ],
    versions: Annotated[
        str,
        typer.Option(
            help="Numbers or aliases of versions, separated by commas; `identity` is the model "
            "without a calibrator."
        ),
    ] = "identity,champion",
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The version that the others are compared with; by default the first.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also save the HTML page.", show_default=False),
    ] = None,
    json_output: JsonOutput = False,
) -> None:
    """Evaluate versions of a model on a server.

    They are measured on the same rows of a data set, and compared with one of them. A warning says
    which versions were fitted on these rows.
    """
    import msgspec

    from recalib.client import Client

    if output is not None:
        if output.suffix != ".html":
            raise InputError("output", found=str(output), accepted="a name that ends in .html")
        check_output_path("output", output)
    names = [name.strip() for name in versions.split(",")]
    with Client(server) as client, progress("evaluation", quiet=json_output) as update:
        queued_job = client.evaluate(model, dataset, names, baseline=baseline)
        job = client.wait(queued_job, progress=lambda _, text: update(text))
        result = client.get_evaluation(model, job)
        if output is not None:
            client.download_report(model, job, output)
    if json_output:
        content = msgspec.to_builtins(result)
        del content["pictures"]
        print_json(content)
        return
    for message in result.warnings:
        warn(message)
    metrics = {item.version: item.metrics for item in result.results}
    rows = f"{result.rows:,} rows" if result.rows != 1 else "1 row"
    labels = len(result.results[0].labels)
    means = f", means over {labels} labels" if labels else ""
    say(metrics_table(metrics, f"{model} on {rows} of {dataset}{means}"))
    for item in result.results[1:]:
        say(_sentence(item, result.results[0]))
        if labels:
            say(_label_sentence(item))
    if output is not None:
        say(f"saved {output}")


def _sentence(item: VersionResult, first: VersionResult) -> str:
    change = item.changes.get("nll")
    names = [_title(result.version) for result in (item, first)]
    if change is None:
        return f"{names[0]} is not compared: the data set has one row"
    return (
        f"{names[0]} against {names[1]}: NLL {change.value:+.4f}, 95% interval "
        f"{change.low:+.4f} to {change.high:+.4f} ({change.verdict})"
    )


def _label_sentence(item: VersionResult) -> str:
    counts = Counter(label.changes["nll"].verdict for label in item.labels if label.changes)
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    return f"labels by NLL: {verdicts or 'not compared'}"


def _title(version: str) -> str:
    return f"version {version}" if version.isdigit() else version
