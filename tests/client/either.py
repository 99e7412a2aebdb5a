"""One interface to both clients, so that each test covers both."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from recalib.client import AsyncClient, Client

__all__ = ["KINDS", "Either", "asyncio_is_slow"]

KINDS = ("blocking", "asyncio")

#: For tests that make the server fit: a short run has the blocking client only.
asyncio_is_slow = pytest.mark.parametrize(
    "kind", ["blocking", pytest.param("asyncio", marks=pytest.mark.slow)]
)


class Either:
    """`Client`, or an `AsyncClient` whose event loop runs in another thread.

    It has every attribute of `Client`, with the same results.
    """

    def __init__(self, kind: str, url: str, **more: Any) -> None:
        self.kind = kind
        self._client: Any
        if kind == "blocking":
            self._client = Client(url, **more)
            return
        self._portal_of = start_blocking_portal(kind)
        self._portal = self._portal_of.__enter__()
        self._client = AsyncClient(url, **more)

    def __enter__(self) -> Either:
        return self

    def __exit__(self, *_: object) -> None:
        if self.kind == "blocking":
            self._client.close()
            return
        self._portal.call(self._client.aclose)
        self._portal_of.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._client, name)
        if self.kind == "blocking" or not callable(result):
            return result
        act = self._called if inspect.iscoroutinefunction(result) else self._iterated
        return functools.partial(act, result)

    def _called(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        return self._portal.call(functools.partial(method, *args, **kwargs))

    def _iterated(self, method: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        items: AsyncIterator[Any] = method(*args, **kwargs)

        async def following() -> list[Any]:
            return [item async for item in _first(items)]

        while answer := self._portal.call(following):
            yield answer[0]


async def _first(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    with contextlib.suppress(StopAsyncIteration):
        yield await anext(items)
