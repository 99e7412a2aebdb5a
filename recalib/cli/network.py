"""Sockets of `recalib serve`."""

from __future__ import annotations

import socket

from recalib.errors import InputError
from recalib.settings import Settings

#: Connections that may wait to be accepted; uvicorn's default.
_BACKLOG = 2048


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
