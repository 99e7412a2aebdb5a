"""Wire formats: the request for a batch of logits, and how to read the answer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Rows = NDArray[np.float32]
#: Headers (names in lower case) and body.
Answer = tuple[Mapping[str, str], bytes]

_JSON, _BYTES = "application/json", "application/octet-stream"


@dataclass(frozen=True)
class Request:
    """A POST request, and how to read the numbers in the answer."""

    path: str
    body: bytes
    #: Returns the numbers in any shape; the caller knows the shape.
    numbers: Callable[[Answer], NDArray[Any]]
    headers: dict[str, str] = field(default_factory=dict)


def _dumped(value: object) -> bytes:
    """Return JSON with the digits of float32."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def rows(path: str, logits: Rows, answers: str | None = "probabilities") -> Request:
    """`{"logits": [[...]]}`, answered by rows in a field, or by rows alone."""

    def numbers(answer: Answer) -> NDArray[Any]:
        content = json.loads(answer[1])
        return np.array(content if answers is None else content[answers])

    return Request(path, _dumped({"logits": logits}), numbers, {"Content-Type": _JSON})


def tensor(path: str, logits: Rows) -> Request:
    """A tensor of the Open Inference Protocol, in JSON."""
    body = {"id": "1", "inputs": [{**_described(logits), "data": logits.reshape(-1)}]}
    return Request(
        path,
        _dumped(body),
        lambda answer: np.array(json.loads(answer[1])["outputs"][0]["data"]),
        {"Content-Type": _JSON},
    )


def tensor_bytes(path: str, logits: Rows) -> Request:
    """A tensor of the Open Inference Protocol with binary data after the JSON, both ways."""
    tensor = {**_described(logits), "parameters": {"binary_data_size": logits.nbytes}}
    head = _dumped({"id": "1", "inputs": [tensor], "parameters": {"binary_data_output": True}})
    headers = {"Content-Type": _BYTES, "Inference-Header-Content-Length": str(len(head))}

    def numbers(answer: Answer) -> NDArray[Any]:
        length = int(answer[0]["inference-header-content-length"])
        return np.frombuffer(answer[1][length:], "<f4")

    return Request(path, head + logits.tobytes(), numbers, headers)


def npy(path: str, logits: Rows) -> Request:
    """A .npy file, both ways."""
    file = io.BytesIO()
    np.save(file, logits)
    kind = "application/x-npy"
    return Request(
        path,
        file.getvalue(),
        lambda answer: np.load(io.BytesIO(answer[1])),
        {"Content-Type": kind, "Accept": kind},
    )


def raw(path: str, logits: Rows) -> Request:
    """Raw bytes of the numbers, both ways."""
    return Request(path, logits.tobytes(), _raw_numbers, {"Content-Type": _BYTES})


def file_upload(path: str, logits: Rows) -> Request:
    """Raw bytes as a file in a form; the answer is raw bytes."""
    head = (
        '--boundary\r\nContent-Disposition: form-data; name="logits"; filename="logits"\r\n'
        f"Content-Type: {_BYTES}\r\n\r\n"
    )
    body = head.encode() + logits.tobytes() + b"\r\n--boundary--\r\n"
    return Request(
        path, body, _raw_numbers, {"Content-Type": "multipart/form-data; boundary=boundary"}
    )


def _raw_numbers(answer: Answer) -> NDArray[Any]:
    return np.frombuffer(answer[1], "<f4")


def _described(logits: Rows) -> dict[str, object]:
    return {"name": "logits", "shape": list(logits.shape), "datatype": "FP32"}
