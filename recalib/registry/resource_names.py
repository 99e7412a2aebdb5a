"""Which names people may give to models, datasets and aliases.

A name goes into URLs, file names and log lines, so it is letters, digits and ``._-``, and begins
with a letter or digit: nothing that a path or a shell would read as more than a name.
"""

from __future__ import annotations

import re

from recalib.errors import InputError

__all__ = ["check_alias", "check_name", "is_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ACCEPTED = "1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit"


def is_name(name: str) -> bool:
    """Return whether anything can be called `name`.

    What cannot is not looked for: PostgreSQL cannot even be asked about text with a NUL in it.
    """
    # fullmatch, because `$` would let a trailing newline through.
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(field: str, name: str) -> str:
    """Return `name`, or raise `InputError` about `field` where it is not a legal name."""
    if not is_name(name):
        raise InputError(field, found=repr(name)[:160], accepted=_ACCEPTED)
    return name


def check_alias(field: str, alias: str) -> str:
    """Return `alias`; all digits are refused too, they would read as a version."""
    if check_name(field, alias).isdigit():
        raise InputError(
            field, found=repr(alias), accepted="a name that is not a number, as versions are"
        )
    return alias
