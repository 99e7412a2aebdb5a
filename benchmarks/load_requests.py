"""The requests of `benchmarks.load`: all formats over HTTP and gRPC, and invalid requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.serving import wire
from benchmarks.serving.wire import Request
from service.grpc.generated.recalib.v1 import recalib_pb2 as v1
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2

MODEL, CLASSES = "digits", 10
CALIBRATE, INFER = f"/v1/models/{MODEL}/calibrate", f"/v2/models/{MODEL}/infer"
#: Formats of calibrate requests.
FORMS: dict[str, Callable[[NDArray[np.float32]], Request]] = {
    "JSON": lambda logits: wire.rows(CALIBRATE, logits),
    "npy": lambda logits: wire.npy(CALIBRATE, logits),
    "V2": lambda logits: wire.tensor(INFER, logits),
    "V2 bytes": lambda logits: wire.tensor_bytes(INFER, logits),
}


@dataclass(frozen=True)
class Rpc:
    """A calibrate method of gRPC."""

    method: str
    request: Callable[[NDArray[np.float32]], Any]
    #: The response message.
    answer: Any
    #: Converts a response to the bytes of its probabilities and the version.
    read: Callable[[Any], tuple[bytes, int]]


def _matrix(logits: NDArray[np.float32]) -> v1.Matrix:
    rows, classes = logits.shape
    return v1.Matrix(rows=rows, classes=classes, datatype=v1.DATATYPE_FP32, raw=logits.tobytes())


RPCS = {
    "gRPC": Rpc(
        "/recalib.v1.Calibration/Calibrate",
        lambda logits: v1.CalibrateRequest(model=MODEL, matrix=_matrix(logits)),
        v1.CalibrateResponse,
        lambda answer: (answer.probabilities.raw, answer.calibrator.version),
    ),
    "gRPC, V2": Rpc(
        "/inference.GRPCInferenceService/ModelInfer",
        lambda logits: v2.ModelInferRequest(
            model_name=MODEL,
            inputs=[
                v2.ModelInferRequest.InferInputTensor(
                    name="logits", datatype="FP32", shape=logits.shape
                )
            ],
            raw_input_contents=[logits.tobytes()],
        ),
        v2.ModelInferResponse,
        lambda answer: (answer.raw_output_contents[0], int(answer.model_version)),
    ),
}


def batch(rng: np.random.Generator) -> NDArray[np.float32]:
    """Return logits (N, K) of a request."""
    rows = int(rng.choice([1, 1, 1, 32, 500]))
    return (rng.normal(size=(rows, CLASSES)) * 3).astype(np.float32)


def named_by(kind: str, headers: dict[str, str], content: bytes) -> int | None:
    """Return the version that a response names; an npy response names none."""
    if kind == "npy":
        return None
    if kind == "JSON":
        return int(json.loads(content)["calibrator"]["version"])
    length = headers.get("inference-header-content-length")
    return int(json.loads(content[: int(length) if length else None])["model_version"])


ROW = [[0.0] * CLASSES]
#: Method, path, expected status, and the other arguments of a request.
WRONG: list[tuple[str, str, int, dict[str, Any]]] = [
    ("POST", CALIBRATE, 422, {"content": b'{"logits": [[1, 2'}),
    ("POST", CALIBRATE, 422, {"json": {"logits": [[1.0, 2.0]]}}),
    ("POST", CALIBRATE, 422, {"content": b'{"logits": [[NaN]]}'}),
    ("POST", CALIBRATE + "?calibrator=999999", 404, {"json": {"logits": ROW}}),
    ("POST", CALIBRATE + "?calibrator=nobody", 404, {"json": {"logits": ROW}}),
    ("POST", "/v1/models/nobody/calibrate", 404, {"json": {"logits": ROW}}),
    ("POST", CALIBRATE, 415, {"content": b"x", "headers": {"Content-Type": "image/png"}}),
    ("POST", INFER, 400, {"json": {"inputs": []}}),
    ("POST", "/v1/models", 409, {"json": {"name": MODEL, "classes": 3}}),
    ("POST", "/v1/models", 422, {"json": {"name": "../x", "classes": 3}}),
    ("PUT", f"/v1/models/{MODEL}/aliases/champion", 404, {"json": {"version": 999_999}}),
    ("POST", f"/v1/models/{MODEL}/calibrators", 404, {"json": {"dataset": "nothing"}}),
    ("GET", "/v1/jobs/nobody", 404, {}),
    ("DELETE", CALIBRATE, 405, {}),
]
