"""`python -m service.health.probe`: ends with 0 where the server on this machine can serve.

For container engines that probe by a command. Settings are the server's, from the same environment.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys

from recalib.exit_status import probe_exit_status
from recalib.settings import Settings

__all__ = ["ask", "main"]

#: Less than the engines wait, so that it is this program which says what was wrong.
_PATIENCE_SECONDS = 4.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def ask(settings: Settings) -> str:
    """Return what is wrong with the server that has these settings, empty where nothing is."""
    host = _EVERYWHERE.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=_PATIENCE_SECONDS)
    if settings.tls_certificate:
        # Asked is whether it serves; its name is that of another address than this one.
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            host, settings.port, timeout=_PATIENCE_SECONDS, context=unchecked
        )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        told = answer.read(65_536)
    except (OSError, http.client.HTTPException) as error:
        return f"{host}:{settings.port} does not answer: {error!r}"
    finally:
        connection.close()
    return "" if answer.status == 200 else f"answered {answer.status}: {_detail(told)}"


def _detail(told: bytes) -> str:
    try:
        return str(json.loads(told)["detail"])
    except (ValueError, KeyError, TypeError):
        return repr(told[:200])


def main() -> int:
    """Ask, say on standard error what is wrong, and return the exit status."""
    return probe_exit_status(lambda: ask(Settings()))


if __name__ == "__main__":
    sys.exit(main())
