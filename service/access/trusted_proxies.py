"""The address of a client behind proxies."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from recalib.errors import InputError

_SCHEMES = {b"http": "http", b"https": "https"}


class TrustedProxies:
    """Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.

    Anyone can send these headers, so they count only on connections of these proxies.

    Parameters
    ----------
    proxies: IP addresses and networks, separated by spaces.

    Raises
    ------
    InputError: one is not an address or a network.

    Examples
    --------
    >>> proxies = TrustedProxies("10.0.0.0/8")
    >>> proxies.client("10.0.0.1", {b"x-forwarded-for": b"203.0.113.9, 198.51.100.7, 10.0.0.2"})
    '198.51.100.7'
    """

    def __init__(self, proxies: str = "") -> None:
        self._networks = [_network(text) for text in proxies.split()]
        # Proxies and clients repeat.
        self._trusts = lru_cache(maxsize=4096)(self._contains)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """Return the client's IP address: the rightmost that is not a trusted proxy's.

        Each proxy appends the address of its own peer, so what stands left of that was sent by the
        client. If all are proxies, the leftmost counts; what is not an address ends the search.

        Parameters
        ----------
        peer: IP address of the connection; empty if unknown.
        headers: by lower-case name; repeated ones are joined with commas.
        """
        if not self._networks:
            return peer
        address, hops = peer, headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")
        while hops and self._trusts(address):
            hop = _without_port(hops.pop().strip())
            if not _is_address(hop):
                break
            address = hop
        return address

    def scheme(self, peer: str, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the scheme that the client used with a trusted proxy; None if unknown."""
        proto = headers.get(b"x-forwarded-proto")
        if proto is None or not self._networks or not self._trusts(peer):
            return None
        return _SCHEMES.get(proto)

    def _contains(self, address: str) -> bool:
        if not _is_address(address):
            return False
        ip = ipaddress.ip_address(address)
        # A socket for IPv4 and IPv6 names IPv4 clients like this.
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        accepted = "IP addresses and networks such as 10.0.0.0/8, separated by spaces"
        raise InputError(
            "RECALIB_TRUSTED_PROXIES", found=f"{text!r} ({error})", accepted=accepted
        ) from None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _without_port(hop: str) -> str:
    """Return the address of `1.2.3.4:5`, `[::1]` or `[::1]:5`; anything else unchanged."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
