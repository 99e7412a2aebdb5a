"""Routes of pages: errors are pages too, and who is not signed in is sent to the form."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from recalib.errors import InputError, NotFoundError, RecalibError
from service.console.rendering import page, redirect
from service.console.static_files import static_file
from service.console.visits import NotSignedInError, Visit, visit_of
from service.failures import violation_of
from service.http.problems import status_of


class _PageRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def with_error_pages(request: Request) -> Response:
            try:
                return await handler(request)
            except NotSignedInError as error:
                return _to_sign_in(visit_of(request), error)
            except RequestValidationError as error:
                return error_page(visit_of(request), _of_address(request, error))
            except RecalibError as error:
                return error_page(visit_of(request), error)

        return with_error_pages


def _of_address(request: Request, error: RequestValidationError) -> RecalibError:
    """Return what is wrong with an address: there is no such page, or its query is not valid."""
    first = error.errors()[0]
    if first["loc"][0] == "path":
        return NotFoundError("page", request.url.path[:200])
    return InputError(**violation_of(first, error.body))


def _to_sign_in(visit: Visit, error: NotSignedInError) -> Response:
    # The address of a form is that of its page.
    url = visit.request.url
    wanted = f"{url.path}?{url.query}" if url.query else url.path
    return redirect(visit, f"sign-in?next={quote(wanted, safe='')}&because={error.reason}")


def error_page(visit: Visit, error: RecalibError) -> Response:
    """Return the page that says what went wrong."""
    return page(visit, "error", error=error, title=status_of(error)[1])


router = APIRouter(prefix="/console", include_in_schema=False, route_class=_PageRoute)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    return static_file(name)
