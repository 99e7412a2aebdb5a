"""The nginx of deploy/nginx in front of a server, by Debian's package."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from tests.end_to_end.programs import PATIENCE_SECONDS, Server, until
from tests.requirements import program_path

__all__ = ["ROOT", "edge"]

ROOT = Path(__file__).resolve().parents[2] / "deploy" / "nginx"


@contextlib.contextmanager
def edge(
    server: Server,
    folder: Path,
    *,
    seconds: int = 10,
    certificate: tuple[Path, Path] | None = None,
    verify: Any = True,
    path: str = "",
) -> Iterator[Server]:
    """Run the proxy; yield the same server at the addresses of the proxy.

    Only addresses, ports and folders differ from the container, and the time of a head or body.

    Parameters
    ----------
    seconds: that time.
    certificate: chain and key; with them, the addresses are those with TLS.
    verify: how a client checks the certificate, as httpx2 has it.
    path: the path below which the proxy serves, as docs/console.md says.
    """
    program = program_path("nginx", "nginx-light")
    shutil.copytree(ROOT, folder)
    places = {name: f"127.0.0.1:{_free_port()}" for name in ("8080", "8081", "8443", "8444")}
    replacements = {
        "server:8000": server.url.partition("//")[2],
        "server:8001": server.grpc_url or "127.0.0.1:1",
        "/tmp/": f"{folder}/",  # noqa: S108
        "timeout 10s;": f"timeout {seconds}s;",
        **{f"listen {port}": f"listen {place}" for port, place in places.items()},
    }
    if path:
        replacements["location / {\n    proxy_pass http://rest;"] = (
            f"location {path}/ {{\n    proxy_pass http://rest/;"
        )
    if certificate is not None:
        replacements["/etc/recalib-tls/*"] = str(folder / "tls")
        names = ("/tls/tls.crt", "/tls/tls.key")
        replacements |= dict(zip(names, map(str, certificate), strict=True))
    for file in folder.rglob("*.conf"):
        text = file.read_text()
        for old, new in replacements.items():
            text = text.replace(old, new)
        file.write_text(text)
    # A worker of root's nginx has no access to the folders of the tests.
    options = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
    with (folder / "log").open("wb") as log:
        command = [program, "-p", str(folder), "-c", "nginx.conf", "-g", options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    rest, rpc = ("8443", "8444") if certificate else ("8080", "8081")
    proxied = copy.copy(server)
    proxied.url = f"{'https' if certificate else 'http'}://{places[rest]}{path}"
    proxied.grpc_url = places[rpc]
    proxied.client = httpx2.Client(base_url=proxied.url, timeout=PATIENCE_SECONDS, verify=verify)
    try:
        until(lambda: _ready(process, proxied, folder), "nginx to be ready")
        yield proxied
    finally:
        proxied.client.close()
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _ready(process: subprocess.Popen[bytes], proxied: Server, folder: Path) -> bool:
    assert process.poll() is None, (folder / "log").read_text()
    with contextlib.suppress(httpx2.TransportError):
        return proxied.client.get("/readyz").status_code == 200
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
