"""Errors as gRPC statuses with details: a table from error classes to codes."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from fastapi.exceptions import RequestValidationError
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

from recalib import errors
from service.failures import UNEXPECTED, log_failure, violation_of

#: The code of every error class; a test proves it complete.
CODES: dict[type[errors.RecalibError], grpc.StatusCode] = {
    errors.InputError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.EmptyError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TooLargeError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ColumnsError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.PackageError: grpc.StatusCode.INVALID_ARGUMENT,
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

#: The trailing metadata key of a serialised `google.rpc.Status`.
DETAILS = "grpc-status-details-bin"
#: Metadata is limited to 8 KB: a longer status is lost, and with it the error.
_MAX_VIOLATIONS = 10
_MAX_CHARACTERS = 400


@dataclass(frozen=True)
class Failure:
    """The status with which an RPC fails."""

    code: grpc.StatusCode
    message: str
    details: tuple[BadRequest | RetryInfo, ...] = ()

    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        """Return the trailing metadata."""
        status = Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            status.details.add().Pack(detail)
        return ((DETAILS, status.SerializeToString()),)


def failure_of(error: Exception) -> Failure:
    """Return the status of an error, and log it if the server is at fault."""
    if isinstance(error, RequestValidationError):
        violations = [violation_of(item, error.body) for item in error.errors()]
        return _bad_request(grpc.StatusCode.INVALID_ARGUMENT, violations)
    if isinstance(error, DecodeError):
        accepted = "the message that this method takes"
        error = errors.InputError("message", found="other bytes", accepted=accepted)
    log_failure(error)
    if not isinstance(error, errors.RecalibError):
        return Failure(grpc.StatusCode.INTERNAL, UNEXPECTED)
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    if isinstance(error, errors.InputError):
        violation = {"field": error.field, "found": error.found, "accepted": error.accepted}
        return _bad_request(code, [violation])
    if isinstance(error, errors.LimitedError):
        return Failure(code, _short(str(error)), (_retry_after(error.retry_after_seconds),))
    unavailable = code is grpc.StatusCode.UNAVAILABLE
    return Failure(code, _short(str(error)), (_retry_after(1),) if unavailable else ())


def _retry_after(seconds: int) -> RetryInfo:
    return RetryInfo(retry_delay=Duration(seconds=seconds))


def _bad_request(code: grpc.StatusCode, violations: list[dict[str, str]]) -> Failure:
    sentences = [
        f"found {violation['found']}; accepted: {violation['accepted']}" for violation in violations
    ]
    details = BadRequest(
        field_violations=[
            BadRequest.FieldViolation(
                field=_short(violation["field"]), description=_short(sentence)
            )
            for violation, sentence in zip(violations, sentences, strict=True)
        ][:_MAX_VIOLATIONS]
    )
    return Failure(code, _short(f"{violations[0]['field']}: {sentences[0]}"), (details,))


def _short(text: str) -> str:
    """Return text as valid UTF-8 (a lone surrogate has none), cut to `_MAX_CHARACTERS`."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."
