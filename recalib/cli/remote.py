"""Commands that ask a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recalib.cli.arguments import Input, Json, Output, check_target
from recalib.errors import InputError
from recalib.terminal import print_json, progress, say

__all__ = ["calibrate"]


def calibrate(
    data: Annotated[Path, typer.Argument(help="Logits, labels not needed.", show_default=False)],
    server: Annotated[
        str,
        typer.Option(help="Its address: http://127.0.0.1:8000.", show_default=False),
    ],
    model: Annotated[str, typer.Option(help="The model's name there.", show_default=False)],
    output: Output,
    calibrator: Annotated[
        str, typer.Option(help="A version, or an alias that points to one.")
    ] = "champion",
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Have a server turn logits into calibrated probabilities, saved as `apply` saves them."""
    from recalib import files
    from recalib.client import Client

    if output.suffix != ".npz":
        raise InputError("output", found=str(output), accepted="a name that ends in .npz")
    check_target("output", output, data)
    with Client(server) as client, progress("calibrate", quiet=json_output) as at:
        at("reading")
        rows = files.read(data, input=input, labels="optional")
        at(f"asking {server}")
        probabilities = client.calibrate(model, rows.logits, calibrator=calibrator, input=input)
        files.write_npz(output, probabilities=probabilities)
    n, k = probabilities.shape
    if json_output:
        print_json({"output": str(output), "rows": n, "classes": k})
    else:
        say(f"saved {n} rows of {k} probabilities to {output}")
