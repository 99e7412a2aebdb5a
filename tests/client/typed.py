"""Types of both clients, checked by `make lint`; mypy reports unused ignores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from recalib.client import AsyncClient, Client, Job, Model


def blocking(client: Client) -> None:
    assert_type(client.get_model("m"), Model)
    assert_type(client.list_models(), Iterator[Model])
    assert_type(client.wait(client.fit("m", "d", promote=False)), Job)
    assert_type(client.calibrate("m", [[1.0, None]], calibrator=3), NDArray[np.float32])
    client.get_model(3)  # type: ignore[arg-type]
    client.fit("m")  # type: ignore[call-arg]
    client.calibrate("m", [], inputs="logits")  # type: ignore[call-arg]


async def awaiting(client: AsyncClient) -> None:
    assert_type(await client.get_model("m"), Model)
    assert_type(client.list_models(), AsyncIterator[Model])
    assert_type(await client.wait(await client.fit("m", "d", promote=False)), Job)
    assert_type([model.name async for model in client.list_models()], list[str])
    len(client.get_model("m"))  # type: ignore[arg-type]
