"""Errors as gRPC statuses with details: one table from classes to codes."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from pydantic import ValidationError

from recalib import errors
from service.failures import UNEXPECTED, log_failure, violation_of

__all__ = ["CODES", "DETAILS", "Failure", "failure_of"]

#: The code of every error class; a test proves it complete.
CODES: dict[type[errors.RecalibError], grpc.StatusCode] = {
    errors.InputError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TooLargeError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.UnsupportedError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotAcceptableError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.ConflictError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.UnauthorizedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.ForbiddenError: grpc.StatusCode.PERMISSION_DENIED,
    errors.LimitedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.CorruptError: grpc.StatusCode.DATA_LOSS,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.FencedError: grpc.StatusCode.ABORTED,
    errors.RecalibError: grpc.StatusCode.INTERNAL,
}

#: The trailing metadata in which clients look for a `google.rpc.Status`.
DETAILS = "grpc-status-details-bin"
#: Metadata has 8 KB: what is longer is lost on the way, and the error with it.
_MOST_VIOLATIONS = 10
_MOST_CHARACTERS = 400


@dataclass(frozen=True)
class Failure:
    """How an RPC ends that fails."""

    code: grpc.StatusCode
    message: str
    details: tuple[BadRequest | RetryInfo, ...] = ()

    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        """Return the trailing metadata."""
        status = Status(code=self.code.value[0], message=self.message)
        for one in self.details:
            status.details.add().Pack(one)
        return ((DETAILS, status.SerializeToString()),)


def failure_of(error: Exception) -> Failure:
    """Return how an RPC ends that met `error`, and log what is ours to mend."""
    if isinstance(error, ValidationError):
        return _bad_request(grpc.StatusCode.INVALID_ARGUMENT, _violations(error))
    if isinstance(error, DecodeError):
        accepted = "the message that this method takes"
        error = errors.InputError("message", found="other bytes", accepted=accepted)
    log_failure(error)
    if not isinstance(error, errors.RecalibError):
        return Failure(grpc.StatusCode.INTERNAL, UNEXPECTED)
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    if isinstance(error, errors.InputError):
        place = {"field": error.field, "found": error.found, "accepted": error.accepted}
        return _bad_request(code, [place])
    if isinstance(error, errors.LimitedError):
        return Failure(code, _short(str(error)), (_again(error.retry_after_seconds),))
    unavailable = code is grpc.StatusCode.UNAVAILABLE
    return Failure(code, _short(str(error)), (_again(1),) if unavailable else ())


def _again(seconds: int) -> RetryInfo:
    return RetryInfo(retry_delay=Duration(seconds=seconds))


def _violations(error: ValidationError) -> list[dict[str, str]]:
    """Return where a form is wrong, by its fields; what is deeper in them `found` shows."""
    return [
        violation_of({**one, "loc": ("body", field)}, {field: None})
        for one in error.errors()
        for field in one["loc"][:1]
    ]


def _bad_request(code: grpc.StatusCode, violations: list[dict[str, str]]) -> Failure:
    sentences = [f"found {one['found']}; accepted: {one['accepted']}" for one in violations]
    details = BadRequest(
        field_violations=[
            BadRequest.FieldViolation(field=_short(one["field"]), description=_short(sentence))
            for one, sentence in zip(violations, sentences, strict=True)
        ][:_MOST_VIOLATIONS]
    )
    return Failure(code, _short(f"{violations[0]['field']}: {sentences[0]}"), (details,))


def _short(text: str) -> str:
    """Return text that metadata can carry: half of a surrogate pair has no UTF-8."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
