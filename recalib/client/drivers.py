"""How a plan becomes a method: one that returns on `Client`, one to be awaited on `AsyncClient`.

>>> class Operations:
...     get_model = Operation(models.get_model)     # doctest: +SKIP

`client.get_model("resnet")` is then a `Model` for a `Client`, and a coroutine of one for an
`AsyncClient`, for type checkers as well, with the plan's own parameters.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from recalib.client.operations import Answer, Plan, Request, Session, Step
from recalib.client.results import Page
from recalib.client.retry import fetch

__all__ = ["Awaiting", "Blocking", "ListOperation", "Listing", "Operation"]

P = ParamSpec("P")
T = TypeVar("T")

#: Items asked for at once; the most that a server gives.
_PAGE = 1000


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A list that comes in pages."""

    kind: type[Page[T]]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    def page(self, session: Session, cursor: str | None) -> Plan[Page[T]]:
        """Return the page at `cursor`, the first where it is None."""
        query = {**self.query, "limit": str(_PAGE)} | ({"cursor": cursor} if cursor else {})
        return fetch(session, self.kind, "GET", self.path, query=query)


class Blocking(ABC):
    """Takes the steps of plans one after the other."""

    session: Session

    @abstractmethod
    def _request(self, request: Request) -> Answer:
        """Return the answer; `UnreachableError` where there is none."""

    @abstractmethod
    def _pause(self, seconds: float) -> None: ...

    def _step(self, step: Step) -> Answer | None:
        if isinstance(step, Request):
            return self._request(step)
        self._pause(step.seconds)
        return None

    def _run(self, plan: Plan[T]) -> T:
        proceed: Callable[[], Step] = functools.partial(next, plan)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                proceed = functools.partial(plan.send, self._step(step))
            except BaseException as error:  # the plan decides, of Ctrl-C too
                proceed = functools.partial(plan.throw, error)

    def _items(self, listing: Listing[T]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._run(listing.page(self.session, cursor))
            yield from page.items
            if (cursor := page.next_cursor) is None:
                return


class Awaiting(ABC):
    """Awaits the steps of plans one after the other."""

    session: Session

    @abstractmethod
    async def _request(self, request: Request) -> Answer:
        """Return the answer; `UnreachableError` where there is none."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None: ...

    async def _step(self, step: Step) -> Answer | None:
        if isinstance(step, Request):
            return await self._request(step)
        await self._pause(step.seconds)
        return None

    async def _run(self, plan: Plan[T]) -> T:
        proceed: Callable[[], Step] = functools.partial(next, plan)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                proceed = functools.partial(plan.send, await self._step(step))
            except BaseException as error:  # the plan decides, of cancellation too
                proceed = functools.partial(plan.throw, error)

    async def _items(self, listing: Listing[T]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._run(listing.page(self.session, cursor))
            for item in page.items:
                yield item
            if (cursor := page.next_cursor) is None:
                return


class Operation(Generic[P, T]):
    """A method of both clients, from the plan of what it does."""

    def __init__(self, plan: Callable[Concatenate[Session, P], Plan[T]]) -> None:
        self._plan = plan

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Callable[..., Any]:
        plan = self._plan

        @functools.wraps(plan)
        def blocking(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._run(plan(self.session, *args, **kwargs))

        @functools.wraps(plan)
        async def awaiting(self: Awaiting, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._run(plan(self.session, *args, **kwargs))

        return _bound(awaiting if issubclass(owner, Awaiting) else blocking, client)


class ListOperation(Generic[P, T]):
    """A method of both clients that returns an iterator, from what it lists."""

    def __init__(self, listing: Callable[P, Listing[T]]) -> None:
        self._listing = listing

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Callable[..., Any]:
        listing = self._listing

        @functools.wraps(listing)
        def method(self: Blocking | Awaiting, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self._items(listing(*args, **kwargs))

        return _bound(method, client)


def _bound(method: Callable[..., Any], client: object | None) -> Callable[..., Any]:
    # On the class as well, so that `help(Client)` shows it.
    return method if client is None else MethodType(method, client)
