"""Mutations of valid bytes: lengths, offsets, numbers in text."""

from __future__ import annotations

import re
import struct
from typing import Any

from hypothesis import strategies as st

__all__ = ["changed"]

#: Replacements of lengths, offsets and counts.
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1,
            2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
#: Replacements of numbers in text, and insertions.
_TEXTS = (
    b"-1", b"0", b"1e400", b"-1e400", b"1e-400", b"9" * 30, b"9" * 5000, b"0x10", b"NaN",
    b"Infinity", b"null", b"true", b'"', b"'", b"\x00", b"\r\n", b"\x1b[2J", b"\xff\xfe", b"\xef",
    b"\xed\xa0\x80", b"\\ud800", b"[" * 300, b"(" * 150, b"{" * 300, b",", b"%00", b"../", b"\\",
)  # fmt: skip
_DIGITS = re.compile(rb"-?[0-9]+(\.[0-9]+)?")
_LARGEST = 1 << 16


@st.composite
def changed(draw: Any, seeds: tuple[bytes, ...]) -> bytes:
    """Return a seed after one to four changes."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        change = draw(st.sampled_from(_CHANGES))
        content = change(draw, content, seeds)[:_LARGEST]
    return content


def _place(draw: Any, content: bytes) -> int:
    # Headers, directories and footers are at the ends.
    near = st.integers(0, min(len(content), 64))
    return draw(st.one_of(near, near.map(lambda n: len(content) - n), st.integers(0, len(content))))


def _flip(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    at = _place(draw, content)
    return content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]


def _cut(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    at = _place(draw, content)
    return content[:at] + content[at + draw(st.integers(1, 64)) :]


def _end(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    return content[: _place(draw, content)]


def _repeat(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    at, size = _place(draw, content), draw(st.integers(1, 200))
    return content[:at] + content[at : at + size] * draw(st.integers(2, 20)) + content[at:]


def _splice(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    other = draw(st.sampled_from(seeds))
    return content[: _place(draw, content)] + other[_place(draw, other) :]


def _number(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    """Replace a number of 2, 4 or 8 bytes, in either byte order."""
    width, code = draw(st.sampled_from(((2, "H"), (4, "I"), (8, "Q"))))
    order = draw(st.sampled_from("<>"))
    value = draw(st.sampled_from(_NUMBERS)) % 2 ** (8 * width)
    at = _place(draw, content)
    return content[:at] + struct.pack(order + code, value) + content[at + width :]


def _text(draw: Any, content: bytes, seeds: tuple[bytes, ...]) -> bytes:
    """Replace a number in text, or insert text."""
    numbers = list(_DIGITS.finditer(content))
    new = draw(st.sampled_from(_TEXTS))
    if numbers and draw(st.booleans()):
        number = numbers[draw(st.integers(0, len(numbers) - 1))]
        return content[: number.start()] + new + content[number.end() :]
    at = _place(draw, content)
    return content[:at] + new + content[at:]


_CHANGES = (_flip, _cut, _end, _repeat, _splice, _number, _text)
