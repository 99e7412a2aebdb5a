"""`recalib export`: write a calibrator as an ONNX model."""

from __future__ import annotations

from recalib.cli.arguments import CalibratorFile, JsonOutput, OutputFile, check_output_path
from recalib.errors import InputError
from recalib.terminal import print_json, say

__all__ = ["export"]


def export(calibrator: CalibratorFile, output: OutputFile, json_output: JsonOutput = False) -> None:
    """Write a calibrator as an ONNX model.

    The model maps `logits` to `probabilities`.
    """
    from recalib.api import load
    from recalib.files import write_atomically

    if output.suffix != ".onnx":
        raise InputError("output", found=str(output), accepted="a name that ends in .onnx")
    check_output_path("output", output, calibrator)
    graph = load(calibrator).to_onnx()
    write_atomically(output, graph)
    if json_output:
        print_json({"output": str(output), "bytes": len(graph)})
    else:
        say(f"saved {len(graph)} bytes to {output}")
