"""Addresses that webhooks may reach.

A webhook makes a worker send a request to an address that a caller has chosen. Addresses inside the
network, such as a cloud's metadata service, are therefore refused. The check is on the addresses
that a name resolves to, and the connection goes to a checked address, so that a name whose address
changes in between (DNS rebinding) reaches nothing else.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

from recalib.errors import InputError

_MAX_URL_LENGTH = 2_000
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Networks without public hosts: those that are not "globally reachable" in the IANA registries of
#: special-purpose addresses, whole blocks of protocol assignments, multicast, what is deprecated or
#: reserved, and addresses that clouds use inside. An explicit table: what `ipaddress` calls global
#: depends on the version of Python.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # the metadata service of Azure
            *("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"),
        ),
    )
)
#: The only global unicast addresses of IPv6 that IANA allocates.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
#: IPv6 addresses that contain an IPv4 address in their last 32 bits.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ACCEPTED = "a public address, or a name or network of RECALIB_WEBHOOK_TARGETS"


class AllowedTargets:
    """Names, addresses and networks that webhooks may reach although they are not public.

    Parameters
    ----------
    text: names, addresses or networks such as 10.0.0.0/8, separated by spaces.

    Raises
    ------
    InputError: a word is none of these.
    """

    def __init__(self, text: str) -> None:
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for word in text.split():
            try:
                self._networks.append(ipaddress.ip_network(word))
            except ValueError:
                if "/" in word or ":" in word:
                    accepted = "names, addresses and networks, separated by spaces"
                    raise InputError(
                        "RECALIB_WEBHOOK_TARGETS", found=repr(word), accepted=accepted
                    ) from None
                self._names.add(word.lower())

    def check(self, host: str, address: _Address) -> None:
        """Raise `InputError` unless an address that `host` resolves to may be reached."""
        if host.lower() in self._names or any(address in network for network in self._networks):
            return
        inner = _embedded_ipv4(address)
        if inner is not None:
            self.check(host, inner)
        elif not _is_public(address):
            found = host if host == str(address) else f"{host} at {address}"
            raise InputError("url", found=f"{found}, not a public address", accepted=_ACCEPTED)


def check_url(url: str, allowed: AllowedTargets) -> SplitResult:
    """Return the parts of a webhook's URL.

    A name is not resolved: each delivery checks its addresses.

    Raises
    ------
    InputError: it is no URL of http or https, has a user, or is an address that is not allowed.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or a bracket is missing
        is_valid = False
    is_plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if not (is_valid and is_plain and len(url) <= _MAX_URL_LENGTH):
        accepted = f"an ASCII URL of http or https with at most {_MAX_URL_LENGTH} characters"
        raise InputError("url", found=repr(url[:80]), accepted=accepted)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InputError("url", found="a user or a fragment", accepted="a URL without these")
    host = parts.hostname or ""
    try:
        # Without DNS; it reads every form of an address, such as 2130706433 for 127.0.0.1.
        numeric = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        return parts
    for info in numeric:
        allowed.check(host, _address(info))
    return parts


def resolve(parts: SplitResult, allowed: AllowedTargets) -> list[str]:
    """Return the addresses of a URL's host.

    Raises
    ------
    InputError: one of them is not allowed, or there is none.
    """
    host = parts.hostname or ""
    try:
        infos = socket.getaddrinfo(host, parts.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InputError("url", found=f"{host}, an unknown name", accepted=_ACCEPTED) from None
    addresses = [_address(info) for info in infos]
    for address in addresses:
        allowed.check(host, address)
    return list(dict.fromkeys(str(address) for address in addresses))


def _address(info: tuple[object, object, object, object, tuple[object, ...]]) -> _Address:
    # A zone (%eth0) names an interface; such addresses are link-local.
    return ipaddress.ip_address(str(info[4][0]).partition("%")[0])


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _embedded_ipv4(address: _Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, or None."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
