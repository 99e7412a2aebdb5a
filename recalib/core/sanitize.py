"""Escape control characters in untrusted text before it is printed or logged.

Names of classes, files and callers come from clients. An escape sequence in a name could recolour
a terminal or move its cursor. A line end could forge a log line. Bidirectional and zero-width
characters could make one name look like another.
"""

from __future__ import annotations

import re

#: Control characters, zero-width spaces (but not joiners, which some scripts need), line and
#: paragraph separators, bidirectional controls, and surrogates, which have no UTF-8.
_UNSAFE = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
    "\\ufeff\\ud800-\\udfff"
)
_UNSAFE_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"[\\t\\n{_UNSAFE}]")


def sanitize_text(text: str) -> str:
    r"""Return the text with unsafe characters escaped (`\x1b`); line ends and tabs stay."""
    return _UNSAFE_IN_TEXT.sub(_escape, text)


def sanitize_line(text: str) -> str:
    """Return the text as one line: line ends and tabs are escaped as well."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
