"""Errors as `application/problem+json` (RFC 9457): a table from error classes to statuses."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from recalib import errors
from service.failures import UNEXPECTED, log_failure, violation_of


class ReceiveTimeoutError(errors.RecalibError):
    """The client does not send the body."""


#: HTTP status and title of every error class; a test proves it complete.
PROBLEMS: dict[type[errors.RecalibError], tuple[int, str]] = {
    errors.InputError: (422, "Input cannot be used"),
    errors.EmptyError: (422, "Input cannot be used"),
    errors.TooLargeError: (413, "Too large"),
    errors.ColumnsError: (422, "Input cannot be used"),
    errors.PackageError: (422, "Input cannot be used"),
    errors.UnsupportedError: (415, "Unsupported format"),
    errors.NotAcceptableError: (406, "Not acceptable"),
    errors.NotFoundError: (404, "Not found"),
    errors.ConflictError: (409, "Conflict"),
    errors.ExistsError: (409, "Conflict"),
    errors.UnauthorizedError: (401, "Unauthorized"),
    errors.ForbiddenError: (403, "Forbidden"),
    errors.LimitedError: (429, "Too many requests"),
    errors.CorruptError: (500, "Stored data is damaged"),
    errors.UnavailableError: (503, "Temporarily unavailable"),
    errors.FencedError: (409, "Job has passed to another worker"),
    errors.RecalibError: (500, "Internal error"),
}

MEDIA_TYPE = "application/problem+json"
#: Methods to look for in `Allow`.
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: Headers of some statuses.
_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},
    503: {"Retry-After": "1"},
}
_PLAIN_HEADERS = ("Connection", "Retry-After", "WWW-Authenticate")
#: Paths of the Open Inference Protocol, whose errors are plain JSON.
PLAIN_PREFIX = "/v2"


# These two models document the responses of `problem`.
class Violation(BaseModel):
    """One part of the request that is not valid."""

    field: str = Field(
        description="The location, as a path: `logits[3][1]`, `options.bins`, `query.limit`; "
        "`body` is the whole body."
    )
    found: str = Field(description="The value there, truncated.")
    accepted: str = Field(description="The accepted values.")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="`about:blank`: `title` and `status` give the kind of error.")
    title: str = Field(description="The kind of error.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="The error of this request, in one sentence.")
    errors: list[Violation] = Field(
        default_factory=list, description="The violations; only for invalid input."
    )


def problem(
    status: int, title: str, detail: str, violations: list[dict[str, str]] | None = None
) -> Response:
    """Return a problem response.

    Parameters
    ----------
    violations: `field`, `found` and `accepted` of each.
    """
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
    }
    if violations:
        body["errors"] = violations
    headers = _HEADERS.get(status)
    # ASCII: `found` may hold a lone surrogate, which has no UTF-8.
    return Response(json.dumps(body), status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Register the exception handlers of `app`, which answer every error as a problem document."""
    app.add_exception_handler(errors.RecalibError, _of_recalib)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _of_disconnect)
    app.add_exception_handler(Exception, _of_unexpected)


def status_of(error: errors.RecalibError) -> tuple[int, str]:
    """Return the HTTP status and the title of an error."""
    return next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)


def problem_of(error: Exception) -> Response:
    """Return the problem response of an error, and log it if the server is at fault."""
    if isinstance(error, ReceiveTimeoutError):
        return problem(408, "Request timeout", str(error))
    log_failure(error)
    if not isinstance(error, errors.RecalibError):
        return _unexpected()
    status, title = status_of(error)
    violations = None
    if isinstance(error, errors.InputError):
        violations = [{"field": error.field, "found": error.found, "accepted": error.accepted}]
    answer = problem(status, title, str(error), violations)
    if isinstance(error, errors.LimitedError):
        answer.headers["Retry-After"] = str(error.retry_after_seconds)
    return answer


def _plain_problem(status: int, detail: str, headers: dict[str, str]) -> Response:
    """Return an error in the form of the Open Inference Protocol: `{"error": ...}`.

    The protocol has no 422: invalid input is 400.
    """
    status = 400 if status == 422 else status
    return Response(json.dumps({"error": detail}), status, headers, media_type="application/json")


def error_response(path: str, error: Exception) -> Response:
    """Return the response to an error, in the error format of the protocol of `path`."""
    return _for_protocol(path, problem_of(error))


def problem_for(path: str, status: int, title: str, detail: str) -> Response:
    """Return a problem response, in the error format of the protocol of `path`."""
    return _for_protocol(path, problem(status, title, detail))


def _for_protocol(path: str, answer: Response) -> Response:
    if not path.startswith(PLAIN_PREFIX):
        return answer
    headers = {name: answer.headers[name] for name in _PLAIN_HEADERS if name in answer.headers}
    return _plain_problem(answer.status_code, json.loads(bytes(answer.body))["detail"], headers)


async def _of_recalib(request: Request, error: Exception) -> Response:
    return error_response(request.url.path, error)


async def _of_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (registered for this class)
    if isinstance(error.body, bytes):  # FastAPI parses only bodies with a JSON content type
        found = request.headers.get("content-type", "none")
        refusal = errors.UnsupportedError("Content-Type", found=found, accepted="application/json")
        return error_response(request.url.path, refusal)
    violations = [violation_of(item, error.body) for item in error.errors()]
    first = violations[0]
    detail = f"{first['field']}: found {first['found']}; accepted: {first['accepted']}"
    return _for_protocol(request.url.path, problem(422, "Input cannot be used", detail, violations))


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    if isinstance(error.__cause__, ClientDisconnect):  # FastAPI was reading the body
        return await _of_disconnect(request, error)
    if error.status_code == 400:  # raised by FastAPI for JSON that its parser rejects
        found = "JSON that is nested too deeply, or holds too long a number, or is not UTF-8"
        return problem_of(errors.InputError("body", found=found, accepted="JSON"))
    title = detail = str(error.detail)
    if error.status_code == 404:  # raised by FastAPI for a path without a route
        detail = f"no route for {request.method} {request.url.path[:200]}; /docs lists the routes"
    answer = _for_protocol(request.url.path, problem(error.status_code, title, detail))
    if error.status_code == 405:
        answer.headers["Allow"] = _allowed(request)
    return answer


def _allowed(request: Request) -> str:
    """Return the methods of a path, over all its routes; the error names those of one route."""
    scope, routes = request.scope, request.app.routes
    return ", ".join(
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    )


async def _of_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client has left; only the metrics see it


async def _of_unexpected(request: Request, error: Exception) -> Response:
    # Starlette re-raises the error, and `service.http.entry` logs it.
    return _for_protocol(request.url.path, _unexpected())


def _unexpected() -> Response:
    return problem(500, "Internal error", UNEXPECTED)
