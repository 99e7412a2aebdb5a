"""Requests to the issuer of tokens."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, cast

#: Limits of a response: its size, and the time for all of it.
_MAX_BYTES = 256 * 1024
_TIMEOUT_SECONDS = 10.0
_NONE: Mapping[str, str] = {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: only a trusted party may name a URL."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_json(url: str, form: bytes | None = None, headers: Mapping[str, str] = _NONE) -> Any:
    """Return the JSON at a URL that is http or https.

    Parameters
    ----------
    form: the body of a POST; None for GET.

    Raises
    ------
    OSError, http.client.HTTPException: no answer, or one with an error.
    ValueError: no JSON, over 256 KiB, or it takes over ten seconds.
    """
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    accepted = {"Accept": "application/json", **headers}
    request = urllib.request.Request(url, form, accepted)  # noqa: S310
    content = bytearray()
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(request, timeout=_TIMEOUT_SECONDS / 2) as response:
        while chunk := cast("bytes", response.read1(2**16)):
            content += chunk
            if len(content) > _MAX_BYTES or time.monotonic() > deadline:
                raise ValueError(f"{url} returns too much, or too slowly")
    return json.loads(content)
