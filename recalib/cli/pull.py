"""`recalib pull`: download a calibrator from a server."""

from __future__ import annotations

from typing import Annotated

import typer

from recalib.cli.arguments import JsonOutput, OutputFile, ServerUrl, check_output_path
from recalib.terminal import print_json, say

__all__ = ["pull"]


def pull(
    server: ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.", show_default=False)],
    output: OutputFile,
    version: Annotated[str, typer.Option(help="A version, or an alias of a version.")] = "champion",
    json_output: JsonOutput = False,
) -> None:
    """Download a calibrator from a server.

    A name that ends in .calib gets the parameters, one that ends in .onnx the ONNX model.
    """
    from recalib.client import Client

    check_output_path("output", output)
    with Client(server) as client:
        number = client.download_calibrator(model, output, version)
    if json_output:
        print_json({"output": str(output), "model": model, "version": number})
    else:
        say(f"saved version {number} of {model} to {output}")
