"""Requests of KServe's two clients; runs in their environment: see `test_clients.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferOutput,
    InferRequest,
    InferResponse,
)
from kserve.inference_client import RESTConfig

HTTP, GRPC = sys.argv[1], sys.argv[2]
ROWS = np.array(json.load(sys.stdin))
DTYPES = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


def request(datatype: str, *, binary: bool, model: str = "digits") -> InferRequest:
    tensor = InferInput("logits", list(ROWS.shape), datatype)
    tensor.set_data_from_numpy(ROWS.astype(DTYPES[datatype]), binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[tensor], request_id="seven")


def content_of(answer: Any) -> Any:
    return answer.outputs[0].as_numpy().reshape(ROWS.shape).tolist()


async def rest() -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=1))
    answers = {}
    for datatype, binary in (("FP16", True), ("FP32", True), ("FP64", True), ("FP32", False)):
        answer = await client.infer(HTTP, request(datatype, binary=binary), model_name="digits")
        answers[f"{datatype} {'binary' if binary else 'json'}"] = content_of(answer)
    try:
        await client.infer(HTTP, request("FP32", binary=True), model_name="nobody")
        error = ""
    except httpx.HTTPStatusError as exception:
        error = str(exception)
    ready = [
        await client.is_server_live(HTTP),
        await client.is_server_ready(HTTP),
        await client.is_model_ready(HTTP, "digits"),
    ]
    await client.close()
    return {"probabilities": answers, "id": answer.id, "error": error, "ready": ready}


async def over_grpc() -> dict[str, Any]:
    async with InferenceGRPCClient(GRPC) as client:
        answers = {}
        for datatype, binary in (("FP16", True), ("FP32", True), ("FP64", True), ("FP32", False)):
            answer = await client.infer(request(datatype, binary=binary))
            answers[f"{datatype} {'binary' if binary else 'typed'}"] = content_of(answer)
        try:
            await client.infer(request("FP32", binary=True, model="nobody"))
            error = ""
        except grpc.RpcError as exception:
            error = f"{exception.code()} {exception.details()}"
        ready = [
            await client.is_server_live(),
            await client.is_server_ready(),
            await client.is_model_ready("digits"),
        ]
    return {"probabilities": answers, "id": answer.id, "error": error, "ready": ready}


def after_a_model() -> dict[str, Any]:
    """Send the response of a model as the request, as the router of an InferenceGraph does."""
    answers = {}
    for datatype in ("FP32", "FP64"):
        output = InferOutput("dense_1", list(ROWS.shape), datatype)
        output.set_data_from_numpy(ROWS.astype(DTYPES[datatype]), binary_data=False)
        response, _ = InferResponse("seven", "classifier", [output]).to_rest()
        answer = httpx.post(f"{HTTP}/v2/models/digits/infer", json=response)
        answers[datatype] = content_of(InferResponse.from_rest(answer.json()))
    return {"probabilities": answers, "id": answer.json()["id"]}


async def main() -> None:
    result = {"rest": await rest(), "grpc": await over_grpc(), "after a model": after_a_model()}
    print(json.dumps(result))  # noqa: T201


asyncio.run(main())
