"""Requests of Triton's four clients, in their own environment: see `test_clients.py`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import ml_dtypes
import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import model_config_pb2, service_pb2

HTTP, GRPC = sys.argv[1].removeprefix("http://"), sys.argv[2]
ROWS = np.array(json.load(sys.stdin))
DTYPES = {"BF16": ml_dtypes.bfloat16, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
#: Options of message conversion, for the field names of REST.
AS_NAMED = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}


def tensor(module: Any, datatype: str, shape: tuple[int, ...] = ROWS.shape, **how: Any) -> Any:
    tensor_ = module.InferInput(how.pop("name", "logits"), list(shape), datatype)
    rows = ROWS if shape == ROWS.shape else np.zeros(shape)
    tensor_.set_data_from_numpy(rows.astype(DTYPES[datatype]), **how)
    return tensor_


def content_of(answer: Any) -> Any:
    return answer.as_numpy("probabilities").tolist()


def blocking(module: Any, address: str) -> dict[str, Any]:
    with module.InferenceServerClient(address) as client:
        answers = {
            datatype: content_of(client.infer("digits", [tensor(module, datatype)]))
            for datatype in DTYPES
        }
        for name, how in compressions(module).items():
            answers[name] = content_of(client.infer("digits", [tensor(module, "FP32")], **how))
        renamed = [tensor(module, "FP32", name="dense_1")]
        answers["FP32 of another name"] = content_of(client.infer("digits", renamed))
        if module is tritonclient.http:
            answers |= plain_json(client)
        named = client.infer(
            "digits",
            [tensor(module, "FP32")],
            model_version="1",
            request_id="seven",
            outputs=[module.InferRequestedOutput("probabilities")],
        )
        ready = [client.is_server_live(), client.is_server_ready(), client.is_model_ready("digits")]
        ready += [client.is_model_ready("digits", "1")]
        nowhere = [("digits", "9"), ("nobody", ""), ("empty", "")]
        unready = [client.is_model_ready(*model) for model in nowhere]
        return {
            "probabilities": answers | {"version": content_of(named)},
            "answer": as_json(named.get_response()),
            "error": error_of(module, client, "nobody", ROWS.shape),
            "no champion": error_of(module, client, "empty", ROWS.shape),
            "classes": error_of(module, client, "digits", (2, 3)),
            "ready": ready,
            "unready": unready,
            "server": as_json(client.get_server_metadata())["name"],
            "model": as_json(client.get_model_metadata("digits")),
        }


def as_json(answer: Any) -> Any:
    return answer if isinstance(answer, dict) else MessageToDict(answer, **AS_NAMED)


def error_of(module: Any, client: Any, model: str, shape: tuple[int, ...]) -> str:
    try:
        client.infer(model, [tensor(module, "FP32", shape)])
    except tritonclient.http.InferenceServerException as exception:
        return f"{exception.status()} {exception.message()}"
    return ""


def compressions(module: Any) -> dict[str, dict[str, str]]:
    kinds = ("gzip", "deflate")
    if module is tritonclient.grpc:
        return {kind: {"compression_algorithm": kind} for kind in kinds}
    options = ("request_compression_algorithm", "response_compression_algorithm")
    return {kind: dict.fromkeys(options, kind) for kind in kinds}


def plain_json(client: Any) -> dict[str, Any]:
    """JSON numbers in requests and responses, plain and compressed."""
    http, answers = tritonclient.http, {}
    outputs = [http.InferRequestedOutput("probabilities", binary_data=False)]
    for datatype in ("FP32", "FP64"):
        for kind, how in {"plain": {}, **compressions(http)}.items():
            inputs = [tensor(http, datatype, binary_data=False)]
            answer = client.infer("digits", inputs, outputs=outputs, **how)
            answers[f"{datatype} in JSON, {kind}"] = content_of(answer)
    return answers


async def asynchronous(module: Any, inputs: Any, address: str) -> dict[str, Any]:
    async with module.InferenceServerClient(address) as client:
        many = await asyncio.gather(
            *(client.infer("digits", [tensor(inputs, "FP32")]) for _ in range(20))
        )
        ready = [await client.is_server_ready(), await client.is_model_ready("digits")]
    assert all(content_of(answer) == content_of(many[0]) for answer in many)
    return {"probabilities": {"FP32": content_of(many[0])}, "ready": ready}


async def run_both() -> dict[str, Any]:
    http, grpc = tritonclient.http, tritonclient.grpc
    return {
        "http.aio": await asynchronous(http.aio, http, HTTP),
        "grpc.aio": await asynchronous(grpc.aio, grpc, GRPC),
    }


def main() -> None:
    http, grpc = blocking(tritonclient.http, HTTP), blocking(tritonclient.grpc, GRPC)
    result = {"http": http, "grpc": grpc} | asyncio.run(run_both())
    files = (model_config_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR)
    messages = [base64.b64encode(file.serialized_pb).decode() for file in files]
    print(json.dumps({"clients": result, "messages": messages}))  # noqa: T201


main()
