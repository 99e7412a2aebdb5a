"""`python -m service.health.probe`: exit with 0 if the server on this machine is ready.

For container engines that probe with a command. It reads the settings of the server from the same
environment.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys

from recalib.core.exit_status import probe_exit_status
from recalib.settings import Settings

#: Shorter than the timeout of container engines, so that this program can report the error.
_TIMEOUT_SECONDS = 4.0
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def ask(settings: Settings) -> str:
    """Return what is wrong with the server of these settings, or an empty string."""
    host = _LOOPBACK.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=_TIMEOUT_SECONDS)
    if settings.tls_certificate:
        # The certificate is for the public name, not for the loopback address.
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            host, settings.port, timeout=_TIMEOUT_SECONDS, context=unchecked
        )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read(65_536)
    except (OSError, http.client.HTTPException) as error:
        return f"{host}:{settings.port} does not answer: {error!r}"
    finally:
        connection.close()
    return "" if answer.status == 200 else f"answered {answer.status}: {_detail(body)}"


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return repr(body[:200])


def main() -> int:
    """Probe, print what is wrong to standard error, and return the exit status."""
    return probe_exit_status(lambda: ask(Settings()))


if __name__ == "__main__":
    sys.exit(main())
