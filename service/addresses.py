"""Who can reach the address of a server, and whether it is encrypted."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

from recalib.errors import InputError
from recalib.settings import Settings
from service.access.trusted_proxies import TrustedProxies


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address; `InputError` if it is unknown."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        raise InputError("host", found=repr(host), accepted="an address of this machine") from None
    return all(address.startswith("127.") or address == "::1" for address in addresses)


def check_tls(settings: Settings) -> str:
    """Return a warning of a public address without TLS or without a proxy; empty if there is none.

    Raises
    ------
    InputError: only one of certificate and key is set, they do not match, or a trusted proxy is
        not an address.
    """
    TrustedProxies(settings.trusted_proxies)
    is_public = not (settings.trusted_proxies or is_loopback(settings.host))
    names = ("tls_certificate", "tls_key")
    paths = [getattr(settings, name) for name in names]
    if not any(paths):
        fix = "set RECALIB_TLS_CERTIFICATE, or RECALIB_TRUSTED_PROXIES to a proxy with TLS"
        return f"keys and logits are sent unencrypted: {fix}" if is_public else ""
    for name, path in zip(names, paths, strict=True):
        variable = f"RECALIB_{name.upper()}"
        if not path:
            raise InputError(variable, found="nothing", accepted="a file, since the other is set")
        if not os.access(path, os.R_OK) or not Path(path).is_file():
            raise InputError(variable, found=repr(path), accepted="a readable file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*paths)
    except ssl.SSLError as error:
        found = f"{paths[0]!r} with {paths[1]!r} ({error.reason or error})"
        accepted = "a certificate chain and its unencrypted key, in PEM"
        raise InputError("RECALIB_TLS_CERTIFICATE", found=found, accepted=accepted) from None
    fix = "put a proxy such as that of deploy/nginx in front, and set RECALIB_TRUSTED_PROXIES to it"
    return f"nothing limits connections and slow clients: {fix}" if is_public else ""
