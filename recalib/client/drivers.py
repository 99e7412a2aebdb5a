"""Drivers, which perform flows, and descriptors, which turn flows into methods of both clients.

>>> class Operations:
...     get_model = Operation(models.get_model)     # doctest: +SKIP

`client.get_model("resnet")` is then a `Model` for a `Client`, and a coroutine of one for an
`AsyncClient`, with the parameters of the flow. Type checkers see both.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from recalib.client.operations import Action, Flow, Request, Response, Session
from recalib.client.retry import fetch
from recalib.contract.base import Page

P = ParamSpec("P")
T = TypeVar("T")

#: Items per page; the maximum of the server.
PAGE_SIZE = 1000


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A paginated list."""

    kind: type[Page[T]]
    path: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)

    def page(self, session: Session, cursor: str | None) -> Flow[Page[T]]:
        """Return the page at `cursor`; None is the first page."""
        return fetch(session, self.kind, "GET", self.path, query=self.query_at(cursor))

    def query_at(self, cursor: str | None) -> dict[str, str | Sequence[str]]:
        """Return the parameters of the page at `cursor`."""
        return {**self.query, "limit": str(PAGE_SIZE)} | ({"cursor": cursor} if cursor else {})


class SyncDriver(ABC):
    """Performs the actions of flows synchronously."""

    session: Session

    @abstractmethod
    def _request(self, request: Request) -> Response:
        """Return the response; raise `UnreachableError` if there is none."""

    @abstractmethod
    def _pause(self, seconds: float) -> None: ...

    def _perform(self, action: Action) -> Response | None:
        if isinstance(action, Request):
            return self._request(action)
        self._pause(action.seconds)
        return None

    def _run(self, flow: Flow[T]) -> T:
        resume: Callable[[], Action] = functools.partial(next, flow)
        while True:
            try:
                action = resume()
            except StopIteration as stop:
                return stop.value
            try:
                resume = functools.partial(flow.send, self._perform(action))
            except BaseException as error:  # the flow handles errors, KeyboardInterrupt included
                resume = functools.partial(flow.throw, error)

    def _items(self, listing: Listing[T]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._run(listing.page(self.session, cursor))
            yield from page.items
            if (cursor := page.next_cursor) is None:
                return


class AsyncDriver(ABC):
    """Performs the actions of flows asynchronously."""

    session: Session

    @abstractmethod
    async def _request(self, request: Request) -> Response:
        """Return the response; raise `UnreachableError` if there is none."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None: ...

    async def _perform(self, action: Action) -> Response | None:
        if isinstance(action, Request):
            return await self._request(action)
        await self._pause(action.seconds)
        return None

    async def _run(self, flow: Flow[T]) -> T:
        resume: Callable[[], Action] = functools.partial(next, flow)
        while True:
            try:
                action = resume()
            except StopIteration as stop:
                return stop.value
            try:
                resume = functools.partial(flow.send, await self._perform(action))
            except BaseException as error:  # the flow handles errors, cancellation included
                resume = functools.partial(flow.throw, error)

    async def _items(self, listing: Listing[T]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._run(listing.page(self.session, cursor))
            for item in page.items:
                yield item
            if (cursor := page.next_cursor) is None:
                return


class Operation(Generic[P, T]):
    """Turns a flow into a method of both clients."""

    def __init__(self, flow: Callable[Concatenate[Session, P], Flow[T]]) -> None:
        @functools.wraps(flow)
        def sync_method(self: SyncDriver, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._run(flow(self.session, *args, **kwargs))

        @functools.wraps(flow)
        async def async_method(self: AsyncDriver, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._run(flow(self.session, *args, **kwargs))

        self._methods = sync_method, async_method

    @overload
    def __get__(self, client: SyncDriver, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncDriver, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: SyncDriver | AsyncDriver | None, owner: type) -> Callable[..., Any]:
        return _bind(self._methods[issubclass(owner, AsyncDriver)], client)


class ListOperation(Generic[P, T]):
    """Turns a paginated list into a method of both clients that returns an iterator."""

    def __init__(self, listing: Callable[P, Listing[T]]) -> None:
        @functools.wraps(listing)
        def method(self: SyncDriver | AsyncDriver, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self._items(listing(*args, **kwargs))

        # The listing has no first parameter in the place of `self`.
        client = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        parameters = inspect.signature(listing).parameters.values()
        method.__signature__ = inspect.Signature([client, *parameters])  # type: ignore[attr-defined]
        self._method = method

    @overload
    def __get__(self, client: SyncDriver, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncDriver, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: SyncDriver | AsyncDriver | None, owner: type) -> Callable[..., Any]:
        return _bind(self._method, client)


def _bind(method: Callable[..., Any], client: object | None) -> Callable[..., Any]:
    # Without a client, the function itself, so that `help(Client)` shows it.
    return method if client is None else MethodType(method, client)
