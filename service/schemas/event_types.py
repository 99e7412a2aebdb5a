"""Types of events in requests: a whole type, or its first word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recalib.errors import InputError

_TYPE = re.compile(r"[a-z_]{1,32}(\.[a-z_]{1,31})?")
_MAX_TYPES = 100


def check_event_types(field: str, types: Sequence[str]) -> None:
    """Raise `InputError` if there are too many types, or one has no valid form."""
    if len(types) > _MAX_TYPES:
        raise InputError(field, found=f"{len(types)} types", accepted=f"at most {_MAX_TYPES}")
    for type_ in types:
        if not _TYPE.fullmatch(type_):
            accepted = "a type such as job.failed, or its first word"
            raise InputError(field, found=repr(type_[:80]), accepted=accepted)
