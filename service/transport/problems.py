"""Errors as `application/problem+json` (RFC 9457): one table from classes to statuses."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from recalib import errors

__all__ = ["PROBLEMS", "install", "problem", "problem_of"]

log = logging.getLogger(__name__)

#: HTTP status and title of every error class; a test proves it complete.
PROBLEMS: dict[type[errors.RecalibError], tuple[int, str]] = {
    errors.InputError: (422, "Input cannot be used"),
    errors.TooLargeError: (413, "Too large"),
    errors.UnsupportedError: (415, "Unsupported format"),
    errors.NotFoundError: (404, "Not found"),
    errors.ConflictError: (409, "Conflict"),
    errors.CorruptError: (500, "Stored data is damaged"),
    errors.UnavailableError: (503, "Temporarily unavailable"),
    errors.FencedError: (409, "Job has passed to another worker"),
    errors.RecalibError: (500, "Internal error"),
}

_MEDIA_TYPE = "application/problem+json"


def problem(
    status: int, title: str, detail: str, violations: list[dict[str, str]] | None = None
) -> JSONResponse:
    """Return a problem document; `violations` name each field, what was found and accepted."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
    }
    if violations:
        body["errors"] = violations
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse(body, status, headers, media_type=_MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of `app` as a problem document."""
    app.add_exception_handler(errors.RecalibError, _of_recalib)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _of_client_gone)
    app.add_exception_handler(Exception, _of_surprise)


def problem_of(error: Exception) -> JSONResponse:
    """Return the problem document of any error, and log those that are ours to mend."""
    if not isinstance(error, errors.RecalibError):
        log.error("A request failed.", exc_info=error, extra={"action": "request_failed"})
        return _surprise()
    status, title = next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)
    if status >= 500:
        log.error("A request failed: %s", error, extra={"action": "request_failed"})
    violations = None
    if isinstance(error, errors.InputError):
        violations = [{"field": error.field, "found": error.found, "accepted": error.accepted}]
    return problem(status, title, str(error), violations)


async def _of_recalib(request: Request, error: Exception) -> JSONResponse:
    return problem_of(error)


async def _of_validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (what it is registered for)
    violations = [
        {
            "field": ".".join(str(part) for part in one["loc"] if part != "body") or "body",
            "found": _found(one),
            "accepted": one["msg"],
        }
        for one in error.errors()
    ]
    first = violations[0]
    detail = f"{first['field']}: found {first['found']}; accepted: {first['accepted']}"
    return problem(422, "Input cannot be used", detail, violations)


def _found(violation: dict[str, Any]) -> str:
    """What stood there, short: a body of megabytes must not come back in its error."""
    if violation["type"] == "missing":
        return "nothing"
    text = repr(violation.get("input"))
    return text if len(text) <= 80 else text[:77] + "..."


async def _of_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    return problem(error.status_code, str(error.detail), str(error.detail))


async def _of_client_gone(request: Request, error: Exception) -> Response:
    # Nobody reads it; the status, which others use for this as well, is what the metrics count.
    return Response(status_code=499)


async def _of_surprise(request: Request, error: Exception) -> JSONResponse:
    return _surprise()  # Starlette raises the error again, and uvicorn logs it


def _surprise() -> JSONResponse:
    return problem(500, "Internal error", "An unexpected error; the server's log has it.")
