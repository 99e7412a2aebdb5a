"""What all transports do with an error: decide who is at fault, and log it once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from recalib.core.violations import accepted_values
from recalib.errors import CorruptError, InputError, RecalibError, UnavailableError

log = logging.getLogger(__name__)

#: The message for an unexpected error: its details are in the log only.
UNEXPECTED = "An unexpected error; the server's log has it."
_MAX_FOUND_LENGTH = 80
#: What was found, for kinds of violations whose input does not say it.
_FOUND = {
    "missing": "nothing",
    "extra_forbidden": "an unknown field",
    "unexpected_keyword_argument": "an unknown field",
}


def log_failure(error: Exception) -> None:
    """Log `error` if the server is at fault; an unexpected error with its traceback."""
    if not isinstance(error, RecalibError):
        log.error("A request failed.", exc_info=error, extra={"action": "request_failed"})
    elif isinstance(error, CorruptError | UnavailableError) or type(error) is RecalibError:
        log.error("A request failed: %s", error, extra={"action": "request_failed"})


def violation_of(violation: Mapping[str, Any], body: Any) -> dict[str, str]:
    """Return field, found and accepted of one of pydantic's violations.

    Parameters
    ----------
    body: the validated value, if the violation's location begins with "body".
    """
    error = violation.get("ctx", {}).get("error")
    if isinstance(error, InputError):  # a check of several fields of a dataclass
        place = _field(violation, body)
        field = error.field if place == "body" else f"{place}.{error.field}"
        return {"field": field, "found": error.found, "accepted": error.accepted}
    return {
        "field": _field(violation, body),
        "found": _describe(violation),
        "accepted": accepted_values(violation),
    }


def _field(violation: Mapping[str, Any], body: Any) -> str:
    """Return the path in the request; pydantic's also names union members, which it lacks."""
    place, *path = violation["loc"]
    if place != "body":
        return ".".join(str(part) for part in violation["loc"])
    fields = []
    for part in path:
        if isinstance(body, dict) and (part in body or violation["type"] == "missing"):
            fields.append(str(part))
            body = body.get(part)
        elif isinstance(body, list) and isinstance(part, int):
            fields.append(str(part))
            body = body[part]
    return ".".join(fields) or "body"


def _describe(violation: Mapping[str, Any]) -> str:
    """Return the input, cut: an error must not echo a body of megabytes."""
    if violation["type"] == "json_invalid":
        return f"malformed JSON at character {violation['loc'][-1]}: {violation['ctx']['error']}"
    if violation["type"] in _FOUND:
        return _FOUND[violation["type"]]
    text = repr(violation.get("input"))
    return text if len(text) <= _MAX_FOUND_LENGTH else text[: _MAX_FOUND_LENGTH - 3] + "..."
