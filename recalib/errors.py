"""What can go wrong, for every caller of Recalib.

The tree::

    RecalibError
    ├── InputError              what the caller sent cannot be used
    │   ├── TooLargeError       it exceeds a stated limit
    │   ├── UnsupportedError    its format or its content type is not one we read
    │   └── NotAcceptableError  it accepts no answer in a form that we write
    ├── NotFoundError           a name that does not exist
    ├── ConflictError           it contradicts what is already there
    │   └── ExistsError         something else has that name
    ├── UnauthorizedError       nobody knows who asks
    ├── ForbiddenError          whoever asks may not
    ├── LimitedError            whoever asks has asked for too much, for now
    ├── CorruptError            something we stored, or a file of ours, is damaged
    ├── UnavailableError        the database or the blob store cannot be reached
    └── FencedError             this worker has lost the lease on its job

The class says what happened; the message says which field, what was found and what
is accepted. Front ends translate classes, never texts.
"""

from __future__ import annotations

__all__ = [
    "ConflictError",
    "CorruptError",
    "ExistsError",
    "FencedError",
    "ForbiddenError",
    "InputError",
    "LimitedError",
    "NotAcceptableError",
    "NotFoundError",
    "RecalibError",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "UnsupportedError",
]


class RecalibError(Exception):
    """Root of every error that Recalib raises on purpose."""


class InputError(RecalibError):
    """What the caller sent cannot be used.

    Parameters
    ----------
    field: where it is, as a path: ``logits[3][1]``, ``labels``, ``options.bins``.
    found: what stands there.
    accepted: what would have been accepted.
    """

    def __init__(self, field: str, *, found: str, accepted: str) -> None:
        self.field = field
        self.found = found
        self.accepted = accepted
        super().__init__(f"{field}: found {found}; accepted: {accepted}")


class TooLargeError(InputError):
    """It exceeds a limit, which `accepted` states."""


class UnsupportedError(InputError):
    """Its format or content type is not one of those that `accepted` lists."""


class NotAcceptableError(InputError):
    """It accepts no answer in one of the forms that `accepted` lists."""


class NotFoundError(RecalibError):
    """A name that does not exist: a model, dataset, version, alias or job."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} {name!r} does not exist" + (f"; {hint}" if hint else ""))


class ConflictError(RecalibError):
    """It contradicts what is already there: a taken name, other data under the same name."""


class ExistsError(ConflictError):
    """Something else has the name that this was to get."""


class CorruptError(RecalibError):
    """Something stored, or a parameter file, is damaged or not what it says it is."""


class UnavailableError(RecalibError):
    """The database or the blob store cannot be reached; trying again may help."""


class FencedError(RecalibError):
    """The worker's lease on this job has passed to another; nothing it does now counts."""


class UnauthorizedError(RecalibError):
    """Nobody knows who asks: no API key where one is needed, or one that is no good."""


class ForbiddenError(RecalibError):
    """Whoever asks is known, and may not do this."""


class LimitedError(RecalibError):
    """Whoever asks has asked for too much of late, and may ask again after a while.

    Parameters
    ----------
    retry_after_seconds: when it makes sense to.
    """

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{message}; try again in {retry_after_seconds} s")
