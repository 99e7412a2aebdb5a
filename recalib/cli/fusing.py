"""The command `fuse`: a calibrator behind the user's own ONNX classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from recalib.cli.arguments import Json, check_target
from recalib.errors import InputError
from recalib.terminal import print_json, progress, say, warn

__all__ = ["fuse"]


def fuse(
    model: Annotated[Path, typer.Argument(help="Your classifier, .onnx.", show_default=False)],
    calibrator: Annotated[Path, typer.Argument(help="A parameter file.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)
    ],
    source: Annotated[
        str | None,
        typer.Option("--from", help="The model's output to calibrate, where it has several."),
    ] = None,
    input: Annotated[
        Literal["logits", "probabilities"],
        typer.Option(help="What that output holds; never guessed from its values."),
    ] = "logits",
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Keep that output beside the new one.")
    ] = True,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=8x3x32x32", help="The shape of an input to prove it with."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Append a calibrator to an ONNX classifier, and prove on random input that they agree."""
    from recalib.api import load
    from recalib.onnx_fusion.fuse import fuse as fuse_files

    if output.suffix != ".onnx":
        raise InputError("output", found=str(output), accepted="a name that ends in .onnx")
    check_target("output", output, model, calibrator)
    shapes = dict(_shape(one) for one in shape or [])
    with progress("fuse", quiet=json_output):
        fused = fuse_files(
            model, load(calibrator), output, source=source, input=input, keep=keep, shapes=shapes
        )
    proof = fused.proof
    if json_output:
        print_json(
            {
                "output": str(output),
                "bytes": fused.bytes,
                "probabilities": fused.probabilities,
                "proof": {
                    "rows": proof.rows,
                    "largest_difference": proof.difference,
                    "largest_share_of_bound": proof.share,
                },
                "warnings": list(proof.warnings),
            }
        )
        return
    for text in proof.warnings:
        warn(text)
    say(f"saved {fused.bytes} bytes to {output}, whose new output is {fused.probabilities}")
    say(
        f"proven on {proof.rows} random rows: at most {proof.difference:.2g} away from the model "
        f"and then the calibrator, {proof.share:.0%} of what rounding may cost"
    )


def _shape(text: str) -> tuple[str, list[int]]:
    """Return a name and a shape from NAME=8x3x32x32; names may hold an = themselves."""
    name, equals, sizes = text.rpartition("=")
    numbers = sizes.split("x")
    if not equals or not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise InputError("shape", found=repr(text), accepted="NAME=8x3x32x32")
    return name, [int(one) for one in numbers]
