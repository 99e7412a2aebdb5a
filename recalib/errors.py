"""The exceptions of Recalib.

The tree::

    RecalibError
    ├── InputError              the input is invalid; also a ValueError
    │   ├── EmptyError          the input has no rows
    │   ├── TooLargeError       the input exceeds a limit
    │   ├── ColumnsError        a table without columns that are known to be scores
    │   ├── PackageError        an optional package is not installed; also an ImportError
    │   ├── UnsupportedError    the format or content type cannot be read
    │   └── NotAcceptableError  the client accepts none of the response formats
    ├── NotFoundError           a name that does not exist
    ├── ConflictError           the request contradicts the current state
    │   └── ExistsError         the name is already in use
    ├── UnauthorizedError       not authenticated
    ├── ForbiddenError          authenticated but not permitted
    ├── LimitedError            a rate limit is exceeded
    ├── CorruptError            stored data or a parameter file is damaged
    ├── UnavailableError        the database or the blob store cannot be reached
    └── FencedError             the worker has lost the lease on its job

The class states what happened; the message names the field, the value found and the accepted
values. Front ends map classes to status codes and never parse messages.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ColumnsError",
    "ConflictError",
    "CorruptError",
    "EmptyError",
    "ExistsError",
    "FencedError",
    "ForbiddenError",
    "InputError",
    "LimitedError",
    "NotAcceptableError",
    "NotFoundError",
    "PackageError",
    "RecalibError",
    "RecalibWarning",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "UnsupportedError",
]


class RecalibError(Exception):
    """Base class of all errors that Recalib raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickles are made of: engines send errors of workers to the caller."""
        return _restore, (type(self), self.args), vars(self)


class RecalibWarning(UserWarning):
    """Valid input that is probably a mistake."""


class InputError(RecalibError, ValueError):
    """The input is invalid; a `ValueError`, as Python and scikit-learn raise it.

    Parameters
    ----------
    field: the path of the invalid field: ``logits[3][1]``, ``labels``, ``options.bins``.
    found: the value found.
    accepted: the accepted values.
    """

    def __init__(self, field: str, *, found: str, accepted: str) -> None:
        self.field = field
        self.found = found
        self.accepted = accepted
        super().__init__(f"{field}: found {found}; accepted: {accepted}")


class EmptyError(InputError):
    """The input has no rows."""


class TooLargeError(InputError):
    """The input exceeds a limit, which `accepted` states."""


class ColumnsError(InputError):
    """A table has no columns that are known to be scores."""


class PackageError(InputError, ImportError):
    """An optional package is not installed; `accepted` is the command that installs it."""


class UnsupportedError(InputError):
    """The format or content type is not supported; `accepted` lists the supported ones."""


class NotAcceptableError(InputError):
    """The client accepts none of the response formats that `accepted` lists."""


class NotFoundError(RecalibError):
    """A model, dataset, version, alias or job does not exist."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} {name!r} does not exist" + (f"; {hint}" if hint else ""))


class ConflictError(RecalibError):
    """The request contradicts the current state, such as other data under the same name."""


class ExistsError(ConflictError):
    """The name is already in use."""


class CorruptError(RecalibError):
    """Stored data or a parameter file is damaged or has an unexpected content."""


class UnavailableError(RecalibError):
    """The database or the blob store cannot be reached; a retry may succeed."""


class FencedError(RecalibError):
    """Another worker holds the lease on this job; changes by this worker are rejected."""


class UnauthorizedError(RecalibError):
    """Not authenticated: the credentials are missing or invalid."""


class ForbiddenError(RecalibError):
    """Authenticated but not permitted."""


class LimitedError(RecalibError):
    """A rate limit is exceeded.

    Parameters
    ----------
    retry_after_seconds: seconds until a retry may succeed.
    """

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{message}; try again in {retry_after_seconds} s")


def _restore(kind: type[RecalibError], args: tuple[Any, ...]) -> RecalibError:
    return kind.__new__(kind, *args)
