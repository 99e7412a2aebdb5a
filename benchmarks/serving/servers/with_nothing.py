"""Bare ASGI handlers: a lower bound for Python servers on uvicorn.

A request to `/bytes/NAME` is read to its end and answered with the file NAME in the folder
`ANSWERS`. `/json` and `/binary/CLASSES` also compute, without validation, routes,
versions or metrics. For bytes, where the computation dominates, they use onnxruntime, as Recalib
does.
"""

import os
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import orjson
from onnx import TensorProto, helper
from temperature import TEMPERATURES, calibrated


class Question(msgspec.Struct):
    logits: list[list[float]]


_ANSWERS = {
    f"/bytes/{path.name}": path.read_bytes() for path in Path(os.environ["ANSWERS"]).iterdir()
}
_decode = msgspec.json.Decoder(Question).decode


@cache
def _session(classes):
    """Return softmax(logits / T) as a session on one thread."""
    shape = ["rows", classes]
    graph = helper.make_graph(
        [
            helper.make_node("Div", ["logits", "temperature"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=-1),
        ],
        "temperature scaling",
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, shape)],
        [helper.make_tensor("temperature", TensorProto.FLOAT, [], [TEMPERATURES[classes]])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = bytearray()
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    answer = _answer(scope["path"], body)
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def _answer(path, body):
    if path == "/json":
        logits = np.array(_decode(body).logits, np.float32)
        answer = {"probabilities": calibrated(logits)}
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    if path.startswith("/binary/"):
        classes = int(path.rpartition("/")[2])
        logits = np.frombuffer(body, "<f4").reshape(-1, classes)
        return _session(classes).run(["probabilities"], {"logits": logits})[0].tobytes()
    return _ANSWERS[path]
