"""`recalib apply`: calibrate a file of logits."""

from __future__ import annotations

from recalib.cli.arguments import (
    CalibratorFile,
    CalibratorInput,
    JsonOutput,
    LogitsFile,
    OutputFile,
    check_output_path,
)
from recalib.errors import InputError
from recalib.terminal import print_json, progress, say

__all__ = ["apply"]


def apply(
    calibrator: CalibratorFile,
    data: LogitsFile,
    output: OutputFile,
    input: CalibratorInput = None,
    json_output: JsonOutput = False,
) -> None:
    """Turn logits into calibrated probabilities.

    They are saved as `probabilities` in an .npz file.
    """
    from recalib import files
    from recalib.api import load
    from recalib.files.multilabel import read_multilabel

    if output.suffix != ".npz":
        raise InputError("output", found=str(output), accepted="a name that ends in .npz")
    check_output_path("output", output, calibrator, data)
    fitted = load(calibrator)
    with progress("apply", quiet=json_output):
        kind = input or fitted.card.input
        if fitted.is_multilabel:
            scores = read_multilabel(data, input=kind, required=False).scores
        else:
            scores = files.read(data, input=kind, labels="optional").logits
        probabilities = fitted.predict(scores, input=input)
        files.write_npz(output, probabilities=probabilities)
    n, k = probabilities.shape
    if json_output:
        print_json({"output": str(output), "rows": n, "classes": k})
    else:
        say(f"saved {n} rows of {k} probabilities to {output}")
