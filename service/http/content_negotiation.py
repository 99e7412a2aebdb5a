"""Which form an answer takes: what `Accept` asks for, of what there is (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from functools import lru_cache

from recalib.errors import NotAcceptableError

__all__ = ["negotiate"]

_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


# Clients send the same few headers; reading one anew takes as long as parsing a row of logits.
@lru_cache(maxsize=256)
def negotiate(accept: str, offered: tuple[str, ...]) -> str:
    """Return the media type of `offered` that `accept` likes best, the first of equals.

    Of the ranges that match a type, the most specific one says how much it is liked: `type/subtype`
    before `type/*` before `*/*`. An empty header accepts everything.

    Raises
    ------
    NotAcceptableError: it likes none of them.
    """
    ranges = [_range(one) for one in accept.split(",") if one.strip()]
    if not ranges:
        return offered[0]
    best, liking = offered[0], 0.0
    for kind in offered:
        found = _liking(kind, ranges)
        if found > liking:
            best, liking = kind, found
    if liking == 0:
        raise NotAcceptableError("Accept", found=repr(accept[:80]), accepted=", ".join(offered))
    return best


def _range(text: str) -> tuple[str, float]:
    """Return a media range and its quality; one that is not written properly counts as none."""
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            value = value.strip()
            quality = float(value) if _QUALITY.fullmatch(value) else 0.0
    return kind, quality


def _liking(kind: str, ranges: list[tuple[str, float]]) -> float:
    for pattern in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        found = [quality for name, quality in ranges if name == pattern]
        if found:
            return max(found)
    return 0.0
