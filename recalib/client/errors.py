"""What can go wrong between a client and a server.

The tree, below `recalib.errors.RecalibError`; where the same can go wrong without a server, the
class is also the one of `recalib.errors` that says so, named in brackets::

    ServiceError                the server answered with an error
    ├── RefusedError            what was sent cannot be used             [InputError]
    │   ├── RefusedAsTooLargeError      it exceeds a limit               [TooLargeError]
    │   ├── RefusedFormatError          its content type is not read     [UnsupportedError]
    │   └── RefusedFormError            no answer in the form asked for  [NotAcceptableError]
    ├── UnknownCallerError      no API key, or one that is no good       [UnauthorizedError]
    ├── NotAllowedError         the API key is not for this              [ForbiddenError]
    ├── MissingError            something named does not exist           [NotFoundError]
    ├── ContradictionError      it contradicts what is already there     [ConflictError]
    ├── TooOftenError           the API key has asked for too much of late  [LimitedError]
    └── OverloadedError         the server cannot now, and was asked often  [UnavailableError]
    UnreachableError            there is no answer                       [UnavailableError]
    └── TimedOutError           not in time
    MalformedAnswerError        the answer is not what the interface promises
    JobFailedError              the job that was waited for failed, or was cancelled
"""

from __future__ import annotations

from typing import Any

import msgspec

from recalib import errors
from recalib.client.operations import Answer
from recalib.client.results import Job
from recalib.decoding import decoder_of

__all__ = [
    "ContradictionError",
    "JobFailedError",
    "MalformedAnswerError",
    "MissingError",
    "NotAllowedError",
    "OverloadedError",
    "RefusedAsTooLargeError",
    "RefusedError",
    "RefusedFormError",
    "RefusedFormatError",
    "ServiceError",
    "TimedOutError",
    "TooOftenError",
    "UnknownCallerError",
    "UnreachableError",
    "Violation",
    "error_of",
]

#: Characters of an answer that is no problem document, of a proxy's, say.
_SHOWN = 200


class Violation(msgspec.Struct, frozen=True):
    """One thing about a request that cannot be used: where it is, what stood there."""

    field: str
    found: str
    accepted: str


class _Problem(msgspec.Struct):
    """As much of a problem document (RFC 9457) as is read."""

    title: str = ""
    detail: str = ""
    errors: tuple[Violation, ...] = ()


class ServiceError(errors.RecalibError):
    """The server answered with an error.

    Attributes
    ----------
    status: of HTTP.
    title, detail: the kind of error, and what was wrong with this request.
    violations: each thing that cannot be used, where the input is at fault.
    request_id: the answer's `X-Request-ID`, where something on the way sets one.
    """

    def __init__(self, answer: Answer, problem: _Problem) -> None:
        self.status = answer.status
        self.title = problem.title
        self.detail = problem.detail
        self.violations = problem.errors
        self.request_id = answer.headers.get("x-request-id")
        self._take(answer, problem)
        Exception.__init__(self, problem.detail)

    def _take(self, answer: Answer, problem: _Problem) -> None:
        """Set what the other base class has besides."""


class RefusedError(ServiceError, errors.InputError):
    """What was sent cannot be used; `field`, `found` and `accepted` are the first violation's."""

    def _take(self, answer: Answer, problem: _Problem) -> None:
        first = problem.errors[0]
        self.field, self.found, self.accepted = first.field, first.found, first.accepted


class RefusedAsTooLargeError(RefusedError, errors.TooLargeError):
    """It exceeds a limit of the server, which `accepted` states."""


class RefusedFormatError(RefusedError, errors.UnsupportedError):
    """Its content type is not one that the server reads."""


class RefusedFormError(RefusedError, errors.NotAcceptableError):
    """The server has no answer in the form that was asked for: an older one, say."""


class UnknownCallerError(ServiceError, errors.UnauthorizedError):
    """The server asks for an API key, and there was none, or one that is no good."""


class NotAllowedError(ServiceError, errors.ForbiddenError):
    """The API key is not for this, or not for this model."""


class MissingError(ServiceError, errors.NotFoundError):
    """Something that the request names does not exist; `name` is the whole path."""

    def _take(self, answer: Answer, problem: _Problem) -> None:
        self.kind, self.name = "resource", answer.request.path


class ContradictionError(ServiceError, errors.ConflictError):
    """It contradicts what is already there: a taken name, no champion yet."""


class TooOftenError(ServiceError, errors.LimitedError):
    """The API key, or the address, has asked for too much of late, again and again."""

    def _take(self, answer: Answer, problem: _Problem) -> None:
        said = answer.headers.get("retry-after", "")
        self.retry_after_seconds = int(said) if said.isdecimal() else 1


class OverloadedError(ServiceError, errors.UnavailableError):
    """The server cannot answer now, and could not when it was asked again."""


class UnreachableError(errors.UnavailableError):
    """There is no answer: nobody listens, or the connection broke."""


class TimedOutError(UnreachableError):
    """There was no answer, or no end of a job, in time."""


class MalformedAnswerError(errors.RecalibError):
    """The answer is not what the interface promises: is this a Recalib server?"""

    def __init__(self, answer: Answer, why: str) -> None:
        request = answer.request
        super().__init__(f"{request.method} {request.path}: the server's answer {why}")


class JobFailedError(errors.RecalibError):
    """The job that was waited for failed, or was cancelled; `job` is as it ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(f"job {job.id} {job.state}" + (f": {job.error}" if job.error else ""))


#: Statuses that say more than that it did not work; those of `_INPUT` only with violations.
_INPUT: dict[int, type[RefusedError]] = {
    400: RefusedError,
    406: RefusedFormError,
    413: RefusedAsTooLargeError,
    415: RefusedFormatError,
    422: RefusedError,
}
_OTHER: dict[int, type[ServiceError]] = {
    401: UnknownCallerError,
    403: NotAllowedError,
    404: MissingError,
    409: ContradictionError,
    429: TooOftenError,
    502: OverloadedError,
    503: OverloadedError,
    504: OverloadedError,
}


def error_of(answer: Answer) -> ServiceError:
    """Return what an answer that is no success says, from Recalib or from a proxy before it."""
    try:
        problem = decoder_of(_Problem).decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem()
    if not problem.detail:
        request, said = answer.request, _shortened(answer.body)
        problem.detail = f"{request.method} {request.path} was answered {answer.status}{said}"
    kinds: dict[int, Any] = _OTHER | (_INPUT if problem.errors else {})
    error: ServiceError = kinds.get(answer.status, ServiceError)(answer, problem)
    return error


def _shortened(body: bytes) -> str:
    text = " ".join(body[: 4 * _SHOWN].decode(errors="replace").split())
    return f": {text[:_SHOWN]}" if text else ""
