"""Content negotiation: the media type of a response, from `Accept` (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from functools import lru_cache

from recalib.errors import NotAcceptableError

_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


# Cached: clients send the same few headers, and parsing one takes as long as a row of logits.
@lru_cache(maxsize=256)
def negotiate(accept: str, offered: tuple[str, ...]) -> str:
    """Return the media type of `offered` with the highest quality; of equals, the first.

    The quality of a type is that of the most specific matching range: `type/subtype` before
    `type/*` before `*/*`. An empty header accepts everything.

    Raises
    ------
    NotAcceptableError: the header accepts none of them.
    """
    ranges = [_parse_range(part) for part in accept.split(",") if part.strip()]
    if not ranges:
        return offered[0]
    best, best_quality = offered[0], 0.0
    for media_type in offered:
        quality = _quality(media_type, ranges)
        if quality > best_quality:
            best, best_quality = media_type, quality
    if best_quality == 0:
        raise NotAcceptableError("Accept", found=repr(accept[:80]), accepted=", ".join(offered))
    return best


def _parse_range(text: str) -> tuple[str, float]:
    """Return a media range and its quality; an invalid quality counts as 0."""
    media_range, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            value = value.strip()
            quality = float(value) if _QUALITY.fullmatch(value) else 0.0
    return media_range, quality


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    for pattern in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        qualities = [quality for name, quality in ranges if name == pattern]
        if qualities:
            return max(qualities)
    return 0.0
