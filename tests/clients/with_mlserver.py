"""Requests with MLServer's types, codecs and stub, in their own environment."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any

import grpc
import numpy as np
from mlserver.codecs import NumpyCodec, NumpyRequestCodec
from mlserver.grpc import dataplane_pb2 as pb
from mlserver.grpc.converters import ModelInferRequestConverter, ModelInferResponseConverter
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub
from mlserver.types import InferenceRequest, InferenceResponse

HTTP, GRPC = sys.argv[1], sys.argv[2]
ROWS = np.array(json.load(sys.stdin))
DTYPES = {"FP32": np.float32, "FP64": np.float64}


def requests(dtype: Any) -> dict[str, InferenceRequest]:
    """Requests by the tensor codec and by the request codec."""
    tensor = NumpyCodec.encode_input("logits", ROWS.astype(dtype))
    request = NumpyRequestCodec.encode_request(ROWS.astype(dtype))
    request.inputs[0].name = "logits"
    return {"tensor": InferenceRequest(inputs=[tensor], id="seven"), "request": request}


def content_of(answer: InferenceResponse) -> Any:
    return NumpyCodec.decode_output(answer.outputs[0]).tolist()


def post(model: str, body: str) -> Any:
    request_ = urllib.request.Request(  # noqa: S310
        f"{HTTP}/v2/models/{model}/infer", body.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request_) as answer:  # noqa: S310
        return InferenceResponse.model_validate_json(answer.read())


def rest() -> dict[str, Any]:
    answers = {}
    for name, dtype in DTYPES.items():
        for kind, request in requests(dtype).items():
            answers[f"{name} {kind}"] = content_of(post("digits", request.model_dump_json()))
            bare = request.model_dump_json(exclude_none=True)
            answers[f"{name} {kind} bare"] = content_of(post("digits", bare))
    try:
        post("nobody", requests(np.float32)["tensor"].model_dump_json())
        error = ""
    except urllib.error.HTTPError as exception:
        error = exception.read().decode()
    return {"probabilities": answers, "error": error}


def over_grpc() -> dict[str, Any]:
    answers = {}
    with grpc.insecure_channel(GRPC) as channel:
        stub = GRPCInferenceServiceStub(channel)
        for name, dtype in DTYPES.items():
            for kind, request in requests(dtype).items():
                for raw in (False, True):
                    message = ModelInferRequestConverter.from_types(
                        request, model_name="digits", model_version=None, use_raw=raw
                    )
                    answer = ModelInferResponseConverter.to_types(stub.ModelInfer(message))
                    answers[f"{name} {kind} {'raw' if raw else 'typed'}"] = content_of(answer)
        ready = [
            stub.ServerLive(pb.ServerLiveRequest()).live,
            stub.ServerReady(pb.ServerReadyRequest()).ready,
            stub.ModelReady(pb.ModelReadyRequest(name="digits")).ready,
        ]
        message.model_name = "nobody"
        try:
            stub.ModelInfer(message)
            error = ""
        except grpc.RpcError as exception:
            error = f"{exception.code()} {exception.details()}"
    return {"probabilities": answers, "error": error, "ready": ready}


def after_a_model() -> dict[str, Any]:
    """Send the response of a model as the request, as the router of an InferenceGraph does."""
    answers = {}
    for name, dtype in DTYPES.items():
        outputs = [NumpyCodec.encode_output("dense_1", ROWS.astype(dtype))]
        response = InferenceResponse(model_name="classifier", outputs=outputs)
        answers[name] = content_of(post("digits", response.model_dump_json()))
    return {"probabilities": answers}


result = {"rest": rest(), "grpc": over_grpc(), "after a model": after_a_model()}
print(json.dumps(result))  # noqa: T201
