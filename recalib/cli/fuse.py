"""`recalib fuse`: append a calibrator to an ONNX classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import progress, show


def fuse(
    model: Annotated[Path, typer.Argument(help="Your classifier, .onnx.")],
    calibrator: options.CalibratorFile,
    output: options.OutputFile,
    source: options.ModelOutput = None,
    input: options.ModelOutputKind = "logits",
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Keep that output next to the new one.")
    ] = True,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=8x3x32x32", help="The shape of an input to test with."),
    ] = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Append a calibrator to an ONNX classifier.

    The result is verified on random input before it is written.
    """
    from recalib.api import load
    from recalib.onnx_fusion.fuse import fuse as fuse_files

    arguments.check_output_path("output", output, model, calibrator, suffix=".onnx")
    shapes = dict(_parse_shape(option) for option in shape or [])
    with progress("fuse", quiet=json_output):
        fused = fuse_files(
            model, load(calibrator), output, source=source, input=input, keep=keep, shapes=shapes
        )
    proof = fused.proof
    document = {
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
    show(
        document,
        f"saved {fused.bytes} bytes to {output}, whose new output is {fused.probabilities}",
        f"proven on {proof.rows} random rows: at most {proof.difference:.2g} away from the model "
        f"and then the calibrator, {proof.share:.0%} of what rounding may cost",
        warnings=proof.warnings,
        json_output=json_output,
    )


def _parse_shape(option: str) -> tuple[str, list[int]]:
    """Return name and shape of NAME=8x3x32x32; the name itself may contain `=`."""
    name, equals, sizes = option.rpartition("=")
    numbers = sizes.split("x")
    if not equals or not all(size.isdecimal() and int(size) > 0 for size in numbers):
        raise InputError("shape", found=repr(option), accepted="NAME=8x3x32x32")
    return name, [int(size) for size in numbers]
