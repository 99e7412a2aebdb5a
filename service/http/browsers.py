"""Protection against web pages that send requests through the browser of a user.

A page of another site can send requests to a server that its user reaches. Without API keys such a
request would do everything. The checks do not concern gRPC: browsers cannot send gRPC requests.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from recalib.settings import Settings

#: Methods that change nothing (RFC 9110, 9.2.1).
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserChecks:
    """Checks of `Host`, and of `Sec-Fetch-Site` and `Origin` on methods that change state."""

    def __init__(self, settings: Settings) -> None:
        #: None: any. With keys, a page under another name has no key to send.
        self._hosts = None if settings.require_keys else set(settings.allowed_hosts.lower().split())
        self._origins = frozenset(settings.cors_origins.encode().split())
        # Clients repeat few values.
        self._is_accepted = lru_cache(maxsize=1024)(self._is_accepted_host)

    def refusal(self, method: str, headers: Mapping[bytes, bytes]) -> tuple[int, str, str] | None:
        """Return status, title and detail of the refusal of a request; None: it is accepted."""
        host = headers.get(b"host")
        # Browsers always send it. HTTP/1.0 clients, such as probes, need not.
        if host is not None and self._hosts is not None and not self._is_accepted(host):
            name = host[:100].decode("latin-1")
            detail = (
                f"Host: found {name!r}; accepted: a loopback name, or a name in "
                "RECALIB_ALLOWED_HOSTS; a server that requires keys accepts every name"
            )
            return 421, "Misdirected request", detail
        if method in _SAFE_METHODS or not self._is_cross_site(host, headers):
            return None
        detail = "a page of another site may not change anything here: see RECALIB_CORS_ORIGINS"
        return 403, "Forbidden", detail

    def _is_cross_site(self, host: bytes | None, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a page of another origin sent the request; other clients send neither."""
        site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
        if site is None and origin is None:
            return False
        if origin in self._origins:
            return False
        if site is not None:
            return site not in (b"same-origin", b"none")
        return origin is not None and origin.partition(b"://")[2] != host

    def _is_accepted_host(self, host: bytes) -> bool:
        name, port = _split(host.decode("latin-1").lower())
        if port and not port.isdigit():
            return False
        if name == "localhost" or name in (self._hosts or ()):
            return True
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return False


def _split(host: str) -> tuple[str, str]:
    """Return name and port of a `Host` header; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        name, _, rest = host.partition("]")
        return f"{name}]", rest.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port
