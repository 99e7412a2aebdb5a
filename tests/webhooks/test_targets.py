"""URLs of webhooks: only public addresses, in every form of an address."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from recalib.errors import InputError
from recalib.webhooks import AllowedTargets, check_url, resolve

_NONE = AllowedTargets("")

#: Addresses that are not public, in every form that a resolver reads.
_REFUSED = [
    "127.0.0.1", "127.8.9.10", "2130706433", "0x7f000001", "0177.0.0.1", "127.1",
    "0.0.0.0", "0",  # noqa: S104
    "10.0.0.1", "172.16.5.4", "192.168.1.1", "100.64.0.1", "100.100.100.200",
    "169.254.169.254", "2852039166", "168.63.129.16", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "192.0.2.1", "198.18.0.1",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::ffff:0:0]", "[fe80::1]",
    "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
    "192.0.0.192", "192.0.0.9", "192.88.99.1", "192.31.196.1", "203.0.113.7", "198.51.100.1",
    "[fec0::1]", "[3fff::1]", "[5f00::1]", "[100::1]", "[2001:2::1]", "[2001:20::1]", "[4000::1]",
    "[64:ff9b:1::808:808]", "[64:ff9b::c000:c0]", "[2002:c058:6301::1]", "[::ffff:192.0.0.192]",
    "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2001:db8::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", _REFUSED)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    for url in (f"http://{host}/", f"https://{host}:8443/hook"):
        with pytest.raises(InputError, match="not a public address"):
            check_url(url, _NONE)


def test_public_addresses_and_names_are_accepted() -> None:
    for host in (
        "8.8.8.8",
        "[2606:4700::1111]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::808:808]",
        "1.1.1.1",
    ):
        assert check_url(f"https://{host}/x", _NONE).path == "/x"
    assert check_url("https://hooks.example.com/x?y=1", _NONE).hostname == "hooks.example.com"


@pytest.mark.parametrize(
    "url",
    [
        *("", "hooks.example.com", "ftp://example.com/", "file:///etc/passwd", "http://"),
        *("http://example.com:0/", "http://example.com:99999/", "http://[::1", "http://a b/"),
        *("http://user:secret@example.com/", "http://@example.com/", "https://example.com/#x"),
        *("http://example.com\\@127.0.0.1/", "http://exämple.com/", "http://e.com/\r\nX: y"),
        "https://example.com/" + 2_000 * "x",
    ],
)
def test_other_urls_are_refused_without_secrets(url: str) -> None:
    with pytest.raises(InputError) as error:
        check_url(url, _NONE)
    assert "user:secret" not in str(error.value)


def test_allowed_targets_are_names_addresses_and_networks() -> None:
    allowed = AllowedTargets("alerts.internal 10.1.0.0/16 ::1")
    for url in ("http://10.1.2.3/", "http://[::1]/", "http://[::ffff:10.1.2.3]/"):
        check_url(url, allowed)
    for url in ("http://10.2.0.1/", "http://127.0.0.1/"):
        with pytest.raises(InputError):
            check_url(url, allowed)
    for text in ("10.1.0.0/8", "http://x", "a/b"):
        with pytest.raises(InputError, match="RECALIB_WEBHOOK_TARGETS"):
            AllowedTargets(text)


def test_every_address_of_a_name_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with one public and one private address is refused, unless it is listed."""

    def lookup(host: str, port: Any, **_: Any) -> Any:
        if host == "unknown.test":
            raise socket.gaierror(-2, "unknown")
        addresses = [("8.8.8.8", port)]
        if host == "mixed.test":
            addresses.append(("169.254.169.254", port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    parts = {
        host: check_url(f"https://{host}/", _NONE)
        for host in ("public.test", "mixed.test", "unknown.test")
    }
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert resolve(parts["public.test"], _NONE) == ["8.8.8.8"]
    with pytest.raises(InputError, match=r"mixed.test at 169.254.169.254"):
        resolve(parts["mixed.test"], _NONE)
    with pytest.raises(InputError, match="an unknown name"):
        resolve(parts["unknown.test"], _NONE)
    assert len(resolve(parts["mixed.test"], AllowedTargets("MIXED.test"))) == 2
