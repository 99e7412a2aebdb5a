"""The limit on fields of gRPC messages: large arrays pass, many small fields do not."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from recalib.errors import TooLargeError
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from service.grpc.wire import check_fields

_SIZE = 2 << 20


def _field(kind: type[Message], name: str, content: bytes) -> bytes:
    """Return a field with a length, as on the wire."""
    head, length = kind.DESCRIPTOR.fields_by_name[name].number << 3 | 2, len(content)
    size = b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([head]) + size + bytes([length]) + content


@pytest.mark.parametrize(
    "message",
    [
        pb.CalibrateRequest(model="a", matrix=pb.Matrix(rows=1, classes=9, raw=bytes(_SIZE))),
        pb.CalibrateRequest(model="a", matrix=pb.Matrix(values=[0.5] * (_SIZE // 4))),
        pb.AddLabelsRequest(
            model="a", labels=[pb.LateLabel(prediction_id="x" * 150, index=3)] * 10_000
        ),
        pb.AddObservationsRequest(labels=range(10_000), logits=pb.Matrix(raw=bytes(_SIZE))),
        v2.ModelInferRequest(model_name="a", raw_input_contents=[bytes(_SIZE)]),
        v2.ModelInferRequest(
            inputs=[
                v2.ModelInferRequest.InferInputTensor(
                    name="logits",
                    shape=[1, 9],
                    contents=v2.InferTensorContents(fp32_contents=[0.5] * (_SIZE // 4)),
                )
            ]
        ),
    ],
    ids=["raw", "values", "labels", "observations", "v2 raw", "v2 contents"],
)
def test_large_arrays_are_accepted(message: Message) -> None:
    content = message.SerializeToString()
    assert len(content) > 1 << 20
    check_fields(content, message.DESCRIPTOR)


_INFER = v2.ModelInferRequest
_TENSOR = _INFER.InferInputTensor


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (pb.AddLabelsRequest, _field(pb.AddLabelsRequest, "labels", b"") * _SIZE),
        (_INFER, _field(_INFER, "inputs", b"") * _SIZE),
        (_INFER, _field(_INFER, "inputs", _field(_TENSOR, "parameters", b"") * _SIZE)),
        (_INFER, _field(_INFER, "inputs", _field(_TENSOR, "shape", b"\1" * _SIZE))),
        (_INFER, _field(_INFER, "raw_input_contents", b"") * _SIZE),
        (pb.CalibrateRequest, b"\xf8\x07\1" * _SIZE),
        (pb.CalibrateRequest, b"\0" * _SIZE),
    ],
    ids=["labels", "tensors", "parameters", "shape", "raw", "unknown", "zeros"],
)
def test_many_small_fields_are_refused(kind: type[Message], content: bytes) -> None:
    with pytest.raises(TooLargeError, match="raw field"):
        check_fields(content, kind.DESCRIPTOR)


@pytest.mark.parametrize("end", [b"\x0a", b"\x0a\xff\xff", b"\xff" * 20, b"\x0b"])
def test_malformed_bytes_are_left_to_the_parser(end: bytes) -> None:
    content = _field(pb.CalibrateRequest, "model", b"a" * _SIZE) + end
    check_fields(content, pb.CalibrateRequest.DESCRIPTOR)
