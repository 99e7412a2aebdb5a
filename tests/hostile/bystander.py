"""A separate process that measures how long a server's answers take while others attack it.

It calls `/livez` on a new connection each time, and sends a request on a connection that stays
open. It prints the durations when its standard input closes.

    python -m tests.hostile.bystander HOST PORT [MODEL CLASSES [KEY]]
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.end_to_end.programs import Server

__all__ = ["Bystander"]

_INTERVAL_SECONDS = 0.02
_TIMEOUT_SECONDS = 120.0


class Bystander:
    """Context manager of the process. Its results are set at the end.

    Parameters
    ----------
    model, classes: whom to send rows to; without a model, only `/livez` is called.
    """

    def __init__(
        self, server: Server, model: str | None = None, classes: int = 4, key: str | None = None
    ) -> None:
        place = urlsplit(server.url)
        self._arguments = [str(place.hostname), str(place.port)]
        if model is not None:
            self._arguments += [model, str(classes), *([] if key is None else [key])]
        #: Durations of answers with status 200, in seconds.
        self.livez: list[float] = []
        self.calibrate: list[float] = []

    @property
    def slowest(self) -> float:
        """The longest duration of `/livez`, in seconds."""
        return max(self.livez)

    @property
    def p99(self) -> float:
        """The 99th percentile of calibrate requests, in seconds."""
        return sorted(self.calibrate)[int(len(self.calibrate) * 0.99)]

    def __enter__(self) -> Bystander:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        output, _error = self._process.communicate()
        self.livez, self.calibrate = json.loads(output)
        assert self.livez


def main(host: str, port: str, model: str = "", classes: str = "4", key: str = "") -> None:
    """Measure until standard input closes."""

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_SECONDS)

    def call_livez() -> int:
        connection = connect()
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status
        finally:
            connection.close()

    body = json.dumps({"logits": [[0.5] * int(classes)]})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    kept = connect()

    def calibrate() -> int:
        kept.request("POST", f"/v1/models/{model}/calibrate?ids=0", body, headers)
        response = kept.getresponse()
        response.read()
        return response.status

    stopped = threading.Event()
    durations: tuple[list[float], list[float]] = [], []
    calls: list[tuple[Callable[[], int], list[float]]] = [(call_livez, durations[0])]
    if model:
        calls.append((calibrate, durations[1]))
    threads = [threading.Thread(target=_repeat, args=(*call, stopped)) for call in calls]
    for call, seconds in calls:  # the first calls connect
        assert call() == 200, call
        seconds.clear()
    for thread in threads:
        thread.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(durations))


def _repeat(call: Callable[[], int], seconds: list[float], stopped: Any) -> None:
    while not stopped.wait(_INTERVAL_SECONDS if seconds else 0):
        started = time.perf_counter()
        try:
            status = call()
        except OSError:  # refused or closed: the attack holds all connections
            continue
        if status == 200:
            seconds.append(time.perf_counter() - started)


if __name__ == "__main__":
    main(*sys.argv[1:])
