"""Addresses, ports and TLS files of `recalib serve`."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

from recalib.errors import InputError
from recalib.settings import Settings

#: Connections that may wait to be accepted; uvicorn's default.
_BACKLOG = 2048


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
    from service.access.trusted_proxies import TrustedProxies

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


def listen(settings: Settings) -> socket.socket:
    """Return a socket that listens on the REST port; port 0 takes any free port.

    It listens before the server has started: early clients wait in the backlog, and two servers
    never take the same port.
    """
    listener = socket.socket(_family(settings))
    try:
        # Connections of a killed server do not block its port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            "port", found=f"{settings.port} ({error.strerror})", accepted="a free port"
        ) from None
    return listener


def reserve_grpc_port(settings: Settings) -> socket.socket | None:
    """Return a socket that reserves the gRPC port for the server processes; None without gRPC.

    All server processes listen on this port with `SO_REUSEPORT`. Another server could share it in
    the same way, so the port is first bound without that option, which fails if it is taken.
    """
    if settings.grpc_port < 0:
        return None
    reserved = socket.socket(_family(settings))
    try:
        with socket.socket(_family(settings)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.grpc_port))
        # This socket never listens, so it receives no connections. It does not set SO_REUSEADDR:
        # otherwise the probe of another server would succeed until the processes listen.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((settings.host, settings.grpc_port))
    except OSError as error:
        reserved.close()
        raise InputError(
            "grpc_port",
            found=f"{settings.grpc_port} ({error.strerror})",
            accepted="a free port, or -1 for no gRPC",
        ) from None
    return reserved


def _family(settings: Settings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.host else socket.AF_INET
