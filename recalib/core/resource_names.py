"""Valid names of models, datasets, aliases and keys.

A name appears in URLs, file names and log lines. It consists of letters, digits and ``._-`` and
begins with a letter or digit, so it has no special meaning in a path or a shell.
"""

from __future__ import annotations

import re

from recalib.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ACCEPTED = "1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit"


def is_name(name: str) -> bool:
    """Return whether `name` is a valid name.

    Queries check this first: PostgreSQL rejects text with NUL.
    """
    # fullmatch, because `$` would let a trailing newline through.
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(field: str, name: str) -> str:
    """Return `name`, or raise `InputError` for `field` if it is not valid."""
    if not is_name(name):
        raise InputError(field, found=repr(name)[:160], accepted=_ACCEPTED)
    return name


def check_alias(field: str, alias: str) -> str:
    """Return `alias`; `InputError` if it is not valid, or a number, which would mean a version."""
    if check_name(field, alias).isdigit():
        raise InputError(
            field, found=repr(alias), accepted="a name that is not a number, as versions are"
        )
    return alias
