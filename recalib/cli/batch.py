"""`recalib batch`: calibrate a file of any size on a server, by a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recalib.cli.arguments import InputKind, JsonOutput, OutputFile, ServerUrl, check_output_path
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, progress, say


def batch(
    server: ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.", show_default=False)],
    output: OutputFile,
    data: Annotated[
        Path | None, typer.Argument(help="Logits; labels are not needed.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Calibrate this data set of the model, and no file.", show_default=False),
    ] = None,
    version: Annotated[str, typer.Option(help="A version, or an alias of a version.")] = "champion",
    input: InputKind = "logits",
    json_output: JsonOutput = False,
) -> None:
    """Calibrate a file of any size on a server, by a job.

    The name of the output ends in .parquet or .npz; it has `probabilities` in the order of the
    rows. The job continues if this command ends, and resumes if its worker ends.
    """
    from recalib.client import Client
    from recalib.files.probabilities import PROBABILITY_FORMATS

    format: Any = output.suffix.removeprefix(".")
    if format not in PROBABILITY_FORMATS:
        accepted = "a name that ends in .parquet or .npz"
        raise InputError("output", found=str(output), accepted=accepted)
    check_output_path("output", output, *([] if data is None else [data]))
    with Client(server) as client, progress("batch", quiet=json_output) as update:

        def report(_: float, text: str) -> None:
            update(text)

        queued_job = client.create_batch(
            model,
            data,
            dataset=dataset,
            version=version,
            format=format,
            input=input,
            progress=report,
        )
        job = client.wait(queued_job, progress=report)
        result = client.download_batch(model, job, output, progress=report)
    if json_output:
        content = {"rows": result.rows, "version": result.version, "job": result.id}
        print_json({"output": str(output), "model": model} | content)
    else:
        say(f"saved {result.rows} rows of {model} version {result.version} to {output}")
