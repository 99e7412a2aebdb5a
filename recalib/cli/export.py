"""`recalib export`: write a calibrator as an ONNX model, or as models for Triton."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import show


def export(
    calibrator: options.CalibratorFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The ONNX file to write.")
    ] = None,
    triton: Annotated[
        Path | None,
        typer.Option(help="Instead: a folder, the model repository of a Triton server."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="With --triton: the model's name; by default that of the calibrator."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="With --triton: your classifier, .onnx, for an ensemble with it."),
    ] = None,
    source: options.ModelOutput = None,
    input: options.ModelOutputKind = "logits",
    max_batch_size: Annotated[
        int,
        typer.Option(help="With --triton: rows that Triton may join; 0 for no batches.", min=0),
    ] = 0,
    json_output: options.JsonOutput = False,
) -> None:
    """Write a calibrator as an ONNX model, or as models for Triton.

    The model maps `logits` to `probabilities`.
    """
    from recalib.api import load
    from recalib.files import write_atomically

    if triton is not None and output is None:
        from recalib.onnx_fusion.triton import write_repository

        if model is None and (source is not None or input != "logits"):
            accepted = "a classifier, for --from and --input"
            raise InputError("model", found="none", accepted=accepted)
        names = write_repository(
            load(calibrator), triton, name or calibrator.stem, model=model, source=source,
            input=input, max_batch_size=max_batch_size,
        )  # fmt: skip
        text = f"saved {', '.join(names)} to the model repository {triton}"
        show({"triton": str(triton), "models": names}, text, json_output=json_output)
        return
    if triton is not None or output is None:
        found = "neither" if output is None else "both"
        raise InputError("output", found=found, accepted="one of --output and --triton")
    if any(option is not None for option in (name, model, source)) or max_batch_size:
        raise InputError("output", found="options of --triton", accepted="--triton DIR")
    arguments.check_output_path("output", output, calibrator, suffix=".onnx")
    graph = load(calibrator).to_onnx()
    write_atomically(output, graph)
    text = f"saved {len(graph)} bytes to {output}"
    show({"output": str(output), "bytes": len(graph)}, text, json_output=json_output)
