"""Triton's four clients ask a server; run by their own interpreter, see `test_clients.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import ml_dtypes
import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

HTTP, GRPC = sys.argv[1].removeprefix("http://"), sys.argv[2]
ROWS = np.array(json.load(sys.stdin))
DTYPES = {"BF16": ml_dtypes.bfloat16, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


def tensor(module: Any, datatype: str) -> Any:
    given = module.InferInput("logits", list(ROWS.shape), datatype)
    given.set_data_from_numpy(ROWS.astype(DTYPES[datatype]))
    return given


def told(answer: Any) -> Any:
    return answer.as_numpy("probabilities").tolist()


def blocking(module: Any, address: str) -> dict[str, Any]:
    with module.InferenceServerClient(address) as client:
        found = {
            datatype: told(client.infer("digits", [tensor(module, datatype)]))
            for datatype in DTYPES
        }
        found["compressed"] = told(
            client.infer("digits", [tensor(module, "FP32")], **compressed(module))
        )
        named = client.infer(
            "digits",
            [tensor(module, "FP32")],
            model_version="1",
            request_id="seven",
            outputs=[module.InferRequestedOutput("probabilities")],
        )
        response = named.get_response()
        name = response["id"] if isinstance(response, dict) else response.id
        try:
            client.infer("nobody", [tensor(module, "FP32")])
            error = ""
        except tritonclient.http.InferenceServerException as caught:
            error = f"{caught.status()} {caught.message()}"
        ready = [client.is_server_live(), client.is_server_ready(), client.is_model_ready("digits")]
        unready = [client.is_model_ready("digits", "9"), client.is_model_ready("nobody")]
        metadata = client.get_model_metadata("digits")
        name_of = metadata["name"] if isinstance(metadata, dict) else metadata.name
    return {
        "probabilities": found | {"version": told(named)},
        "id": name,
        "error": error,
        "ready": ready,
        "unready": unready,
        "model": name_of,
    }


def compressed(module: Any) -> dict[str, str]:
    if module is tritonclient.grpc:
        return {"compression_algorithm": "gzip"}
    return {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}


async def asynchronous(module: Any, inputs: Any, address: str) -> dict[str, Any]:
    async with module.InferenceServerClient(address) as client:
        many = await asyncio.gather(
            *(client.infer("digits", [tensor(inputs, "FP32")]) for _ in range(20))
        )
        ready = [await client.is_server_ready(), await client.is_model_ready("digits")]
    assert all(told(one) == told(many[0]) for one in many)
    return {"probabilities": {"FP32": told(many[0])}, "ready": ready}


async def both() -> dict[str, Any]:
    http, grpc = tritonclient.http, tritonclient.grpc
    return {
        "http.aio": await asynchronous(http.aio, http, HTTP),
        "grpc.aio": await asynchronous(grpc.aio, grpc, GRPC),
    }


def main() -> None:
    http, grpc = blocking(tritonclient.http, HTTP), blocking(tritonclient.grpc, GRPC)
    found = {"http": http, "grpc": grpc}
    print(json.dumps(found | asyncio.run(both())))  # noqa: T201


main()
