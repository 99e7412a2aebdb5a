"""`recalib pull`: download a calibrator or a data set from a server."""

from __future__ import annotations

from typing import Annotated

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import show


def pull(
    server: options.ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.")],
    output: options.OutputFile,
    version: Annotated[
        str | None,
        typer.Option(help="A version, or an alias of a version. Default: champion."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Download this data set, and no calibrator."),
    ] = None,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Download a calibrator or a data set from a server.

    A calibrator: a name that ends in .calib gets the parameters, one that ends in .onnx the ONNX
    model. A data set is saved as it was uploaded; the name ends as that of the uploaded file.
    """
    from recalib.client import Client

    if dataset is not None and version is not None:
        raise InputError("version", found=f"{version} and a data set", accepted="one of the two")
    arguments.check_output_path("output", output)
    with Client(server, api_key=key) as client:
        if dataset is None:
            number = client.download_calibrator(model, output, version or "champion")
            title = f"version {number}"
            content: dict[str, int | str] = {"version": number}
        else:
            client.download_dataset(model, dataset, output)
            title, content = f"data set {dataset}", {"dataset": dataset}
    document = {"output": str(output), "model": model} | content
    show(document, f"saved {title} of {model} to {output}", json_output=json_output)
