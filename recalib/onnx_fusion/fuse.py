"""Fuse a model file and a calibrator into one file, which is verified before it is written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recalib.calibrator import Calibrator
from recalib.core.lazy_import import LazyModule
from recalib.core.packages import optional_packages
from recalib.errors import InputError, TooLargeError
from recalib.files import Input, write_atomically
from recalib.onnx_fusion.proof import Proof, Runtime, prove

if TYPE_CHECKING:
    from onnx import ModelProto

    from recalib.onnx_fusion.append import AppendedModel

onnx, message = LazyModule("onnx"), LazyModule("google.protobuf.message")

#: Largest protobuf message in bytes; larger models keep their weights in separate files.
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class FusionResult:
    """The result: name of the new output, size of the file, and the verification."""

    probabilities: str
    bytes: int
    proof: Proof


def fuse(
    model: str | os.PathLike[str],
    calibrator: Calibrator | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    source: str | None = None,
    input: Input = "logits",
    keep: bool = True,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> FusionResult:
    """Write `model` with `calibrator` appended to `output`.

    The file returns the outputs of the model and `probabilities`, float32 [N, K]. It is written
    only if, on random input in onnxruntime, it equals the model followed by the calibrator, within
    the bound of `recalib.onnx_fusion.proof`.

    Models of opset 13 (onnx 1.8, December 2020) and later are unchanged except for the appended
    nodes. Older models are first converted to 13; the verification covers the conversion.
    Operators of other domains are accepted if onnxruntime has them. Weights in separate files stay
    there, and the output must be in the same folder.

    Parameters
    ----------
    model, output: names of files.
    calibrator: fitted on an output of the model, or the name of its file.
    source: the model's output to calibrate, [N, K], float16, 32 or 64; required if the model has
        several outputs.
    input: whether that output holds logits or probabilities; never guessed.
    keep: whether that output stays an output.
    shapes: shapes of inputs for the verification. By default the model's, in which only the first
        axis may be free.

    Raises
    ------
    InputError: a file cannot be read or written, onnxruntime cannot run the model, the output has
        another type, rank or number of classes, or the verification fails. Nothing is written
        then.
    PackageError: `recalib[onnx]` is not installed.

    Examples
    --------
    >>> result = recalib.fuse("classifier.onnx", calibrator, "calibrated.onnx")
    >>> result.probabilities
    'probabilities'
    """
    with optional_packages("fuse"):
        from recalib.onnx_fusion.append import append

    path, target = Path(model), Path(output)
    if not isinstance(calibrator, Calibrator):
        calibrator = Calibrator.load(calibrator)
    original = load_onnx(path)
    uses_external_data = onnx.external_data_helper.uses_external_data
    external = any(uses_external_data(tensor) for tensor in original.graph.initializer)
    _check_target(target, path, external)
    # First the checks that do not run the model.
    chosen = choose_source(original, source)
    fused = append(original, calibrator, chosen, input=input, keep=keep, external=external)
    data = _serialise(fused.model)
    tapped = _serialise(_with_calibrator_input(fused)) if fused.half else data
    proof = prove(
        Runtime(path.read_bytes(), path.parent),
        Runtime(tapped, path.parent),
        calibrator,
        source=chosen,
        fused=fused,
        input=input,
        shapes=shapes or {},
    )
    write_atomically(target, data)
    return FusionResult(fused.probabilities, len(data), proof)


def load_onnx(path: Path) -> ModelProto:
    """Return the model in a file; weights in other files are not read."""
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise TooLargeError(
                "model",
                found=f"{path} of {size} bytes",
                accepted=f"{_LARGEST}: keep the weights of a larger model as external data",
            )
        model = onnx.load_from_string(path.read_bytes())
    except OSError as error:
        raise InputError(
            "model", found=f"{path} ({error.strerror})", accepted="an ONNX file"
        ) from None
    except message.DecodeError:
        raise InputError(
            "model", found=f"{path}, which is damaged or no ONNX", accepted="an ONNX file"
        ) from None
    if not model.graph.output:  # an empty file is a valid message without fields
        raise InputError("model", found=f"{path} without any output", accepted="an ONNX file")
    return model


def _check_target(target: Path, path: Path, external: bool) -> None:
    if target.exists() and target.samefile(path):
        raise InputError("output", found=f"{target}, the model itself", accepted="another name")
    if external and target.resolve().parent != path.resolve().parent:
        raise InputError(
            "output",
            found=f"{target}, while the model's weights are in files beside {path}",
            accepted=f"a name in {path.parent}, from where the graph finds them",
        )


def choose_source(model: ModelProto, name: str | None) -> str:
    names = [output.name for output in model.graph.output]
    if name is None and len(names) == 1:
        return str(names[0])
    if name is None or name not in names:
        found = f"{len(names)} outputs of the model" if name is None else repr(name)
        raise InputError("from", found=found, accepted=f"the name of one: {', '.join(names)}")
    return name


def _with_calibrator_input(fused: AppendedModel) -> ModelProto:
    """Return the model with the input of the appended nodes as an additional output."""
    model = onnx.ModelProto()
    model.CopyFrom(fused.model)
    model.graph.output.add().name = fused.entrance
    return model


def _serialise(model: ModelProto) -> bytes:
    try:
        data: bytes = model.SerializeToString()
    except Exception as error:  # protobuf raises several types for a message over 2 GiB
        raise TooLargeError(
            "model",
            found=f"a fused graph that cannot be one message ({error})",
            accepted=f"{_LARGEST} bytes: keep the weights as external data",
        ) from None
    return data
