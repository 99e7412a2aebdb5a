"""Text from outside, in which nothing is obeyed or hidden.

Names of classes, files and callers come from whoever made them. An escape sequence in one would
recolour a terminal or move its cursor, a line end would forge a line of a log, and marks that turn
text about, or take no room, would make one name look like another.
"""

from __future__ import annotations

import re

__all__ = ["visible", "visible_line"]

#: Control characters; spaces without width, but not those that join letters; separators; what turns
#: the direction of text about; halves of surrogate pairs, which have no UTF-8.
_OTHERS = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
    "\\ufeff\\ud800-\\udfff"
)
_IN_TEXT = re.compile(f"[{_OTHERS}]")
_IN_A_LINE = re.compile(f"[\\t\\n{_OTHERS}]")


def visible(text: str) -> str:
    """Return text with such characters written as escapes, `\\x1b`; line ends and tabs stay."""
    return _IN_TEXT.sub(_escape, text)


def visible_line(text: str) -> str:
    """Return text as one line, with line ends and tabs written as escapes too."""
    return _IN_A_LINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
