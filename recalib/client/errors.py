"""Errors of the client.

The tree below `recalib.errors.RecalibError`. A class in brackets is the second base class: the
error of `recalib.errors` for the same problem without a server::

    ServiceError                      the server answered with an error
    ├── InvalidRequestError           the request is invalid                    [InputError]
    │   ├── RequestTooLargeError      a limit is exceeded                       [TooLargeError]
    │   ├── UnsupportedMediaTypeError unsupported content type                  [UnsupportedError]
    │   └── ResponseFormatError       unsupported response format               [NotAcceptableError]
    ├── AuthenticationError           no API key, or an invalid one             [UnauthorizedError]
    ├── PermissionDeniedError         the API key has no permission             [ForbiddenError]
    ├── ResourceNotFoundError         a resource does not exist                 [NotFoundError]
    ├── ResourceConflictError         it conflicts with the current state       [ConflictError]
    ├── RateLimitError                the rate limit is exceeded                [LimitedError]
    └── OverloadedError               the server is overloaded after retries    [UnavailableError]
    UnreachableError                  there is no response                      [UnavailableError]
    └── ServerTimeoutError            there is no response in time
    InvalidResponseError              the response does not match the API
    JobFailedError                    the awaited job failed or was cancelled
"""

from __future__ import annotations

from typing import Any

import msgspec

from recalib import errors
from recalib.client.operations import Response
from recalib.contract.jobs import Job
from recalib.core.decoding import decoder_of

#: Characters shown of a response that is no problem document, such as a proxy's.
_MAX_SHOWN_LENGTH = 200


class Violation(msgspec.Struct, frozen=True):
    """One invalid part of a request: its path, its value, and what is accepted."""

    field: str
    found: str
    accepted: str


class _Problem(msgspec.Struct):
    """The fields of a problem document (RFC 9457) that the client uses."""

    title: str = ""
    detail: str = ""
    errors: tuple[Violation, ...] = ()


class ServiceError(errors.RecalibError):
    """The server answered with an error.

    Attributes
    ----------
    status: the HTTP status.
    title, detail: the kind of error, and the problem of this request.
    violations: the invalid parts of the request.
    request_id: the `X-Request-ID` of the response, if it has one.
    """

    def __init__(self, response: Response, problem: _Problem) -> None:
        self.status = response.status
        self.title = problem.title
        self.detail = problem.detail
        self.violations = problem.errors
        self.request_id = response.headers.get("x-request-id")
        self._set_attributes(response, problem)
        Exception.__init__(self, problem.detail)

    def _set_attributes(self, response: Response, problem: _Problem) -> None:
        """Set the attributes of the second base class."""


class InvalidRequestError(ServiceError, errors.InputError):
    """The request is invalid; `field`, `found` and `accepted` are those of the first violation."""

    def _set_attributes(self, response: Response, problem: _Problem) -> None:
        first = problem.errors[0]
        self.field, self.found, self.accepted = first.field, first.found, first.accepted


class RequestTooLargeError(InvalidRequestError, errors.TooLargeError):
    """The request exceeds a limit of the server, which `accepted` states."""


class UnsupportedMediaTypeError(InvalidRequestError, errors.UnsupportedError):
    """The server does not support the content type of the request."""


class ResponseFormatError(InvalidRequestError, errors.NotAcceptableError):
    """The server does not support the requested format, such as a server of an older version."""


class AuthenticationError(ServiceError, errors.UnauthorizedError):
    """The request has no API key, or an invalid one."""


class PermissionDeniedError(ServiceError, errors.ForbiddenError):
    """The API key does not permit the operation, or the model."""


class ResourceNotFoundError(ServiceError, errors.NotFoundError):
    """A resource of the request does not exist; `name` is the path of the URL."""

    def _set_attributes(self, response: Response, problem: _Problem) -> None:
        self.kind, self.name = "resource", response.request.path


class ResourceConflictError(ServiceError, errors.ConflictError):
    """The request conflicts with the state of the server, such as a name that is taken."""


class RateLimitError(ServiceError, errors.LimitedError):
    """The rate limit of the API key or address is exceeded, also after retries."""

    def _set_attributes(self, response: Response, problem: _Problem) -> None:
        value = response.headers.get("retry-after", "")
        self.retry_after_seconds = int(value) if value.isdecimal() else 1


class OverloadedError(ServiceError, errors.UnavailableError):
    """The server is temporarily unavailable, also after retries."""


class UnreachableError(errors.UnavailableError):
    """There is no response: no server listens, or the connection broke."""


class ServerTimeoutError(UnreachableError):
    """There is no response, or the job has not finished, in time."""


class InvalidResponseError(errors.RecalibError):
    """The response does not match the API. The URL may be that of another program."""

    def __init__(self, response: Response, problem: str) -> None:
        request = response.request
        super().__init__(f"{request.method} {request.path}: the server's response {problem}")


class JobFailedError(errors.RecalibError):
    """The awaited job failed or was cancelled; `job` is its final state."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(f"job {job.id} {job.state}" + (f": {job.error}" if job.error else ""))


#: Statuses of an invalid request; they apply to a problem document with violations.
_INPUT_ERRORS: dict[int, type[InvalidRequestError]] = {
    400: InvalidRequestError,
    406: ResponseFormatError,
    413: RequestTooLargeError,
    415: UnsupportedMediaTypeError,
    422: InvalidRequestError,
}
_ERRORS: dict[int, type[ServiceError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: ResourceNotFoundError,
    409: ResourceConflictError,
    429: RateLimitError,
    502: OverloadedError,
    503: OverloadedError,
    504: OverloadedError,
}


def service_error(response: Response) -> ServiceError:
    """Return the error of a response without success, from Recalib or a proxy."""
    try:
        problem = decoder_of(_Problem).decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem()
    if not problem.detail:
        request, text = response.request, _shorten(response.body)
        problem.detail = f"{request.method} {request.path} was answered {response.status}{text}"
    kinds: dict[int, Any] = _ERRORS | (_INPUT_ERRORS if problem.errors else {})
    return kinds.get(response.status, ServiceError)(response, problem)


def _shorten(body: bytes) -> str:
    text = " ".join(body[: 4 * _MAX_SHOWN_LENGTH].decode(errors="replace").split())
    return f": {text[:_MAX_SHOWN_LENGTH]}" if text else ""
