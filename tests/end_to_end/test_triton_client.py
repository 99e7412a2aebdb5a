"""Triton's own client against a real server: what the ecosystem sends, and what it understands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio

from tests.end_to_end.programs import Programs, Server, probabilities_of
from tests.fitting.conftest import draw

ROWS = draw(50, 4, 3.0)[0]
DTYPES = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("triton")
    programs = Programs(folder, folder / "bytecode")
    try:
        with programs.serve() as server:
            server.model()
            server.upload(*draw(400, 4, 3.0))
            server.finished(server.ask_fit())
            server.model("empty")
            yield server
    finally:
        programs.clean_up()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with tritonclient.http.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def expected(server: Server) -> Any:
    answer = server.ask(
        "POST", "/v1/models/digits/calibrate", json={"logits": ROWS.astype(np.float32).tolist()}
    )
    return probabilities_of(answer)


def tensors(module: Any, datatype: str, *, binary: bool) -> tuple[Any, Any]:
    given = module.InferInput("logits", list(ROWS.shape), datatype)
    given.set_data_from_numpy(ROWS.astype(DTYPES[datatype]), binary_data=binary)
    return given, module.InferRequestedOutput("probabilities", binary_data=binary)


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
@pytest.mark.parametrize(
    ("datatype", "binary"),
    [("FP16", True), ("FP32", True), ("FP64", True), ("FP32", False), ("FP64", False)],
)
def test_infer(
    server: Server, client: Any, datatype: str, binary: bool, compression: str | None
) -> None:
    given, wanted = tensors(tritonclient.http, datatype, binary=binary)
    result = client.infer(
        "digits", [given], outputs=[wanted], request_id="r",
        request_compression_algorithm=compression, response_compression_algorithm=compression,
    )  # fmt: skip
    tolerance = 2e-2 if datatype == "FP16" else 1e-5
    np.testing.assert_allclose(result.as_numpy("probabilities"), expected(server), atol=tolerance)
    answer = result.get_response()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("r", "digits", "1")


def test_the_client_s_defaults(server: Server, client: Any) -> None:
    """Binary both ways, and no output named."""
    given = tritonclient.http.InferInput("logits", list(ROWS.shape), "FP32")
    given.set_data_from_numpy(ROWS.astype(np.float32))
    result = client.infer("digits", [given], model_version="1")
    np.testing.assert_allclose(result.as_numpy("probabilities"), expected(server), atol=1e-5)


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("digits", "9")
    assert not client.is_model_ready("empty")
    assert client.get_server_metadata()["name"] == "recalib"
    metadata = client.get_model_metadata("digits")
    assert metadata["inputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 4]}]
    assert metadata["versions"] == ["1"]


@pytest.mark.parametrize(
    ("model", "shape", "says"),
    [("nobody", (2, 4), "nobody"), ("empty", (2, 4), "has no champion"), ("digits", (2, 3), "3")],
)
def test_errors_reach_the_user(client: Any, model: str, shape: Any, says: str) -> None:
    given = tritonclient.http.InferInput("logits", list(shape), "FP32")
    given.set_data_from_numpy(np.zeros(shape, np.float32))
    with pytest.raises(tritonclient.http.InferenceServerException, match=says):
        client.infer(model, [given])


def test_the_asynchronous_client(server: Server) -> None:
    async def ask() -> Any:
        module = tritonclient.http.aio
        async with module.InferenceServerClient(server.url.removeprefix("http://")) as client:
            assert await client.is_server_ready()
            given, wanted = tensors(tritonclient.http, "FP32", binary=True)
            many = [client.infer("digits", [given], outputs=[wanted]) for _ in range(20)]
            return [one.as_numpy("probabilities") for one in await asyncio.gather(*many)]

    for found in asyncio.run(ask()):
        np.testing.assert_allclose(found, expected(server), atol=1e-5)
