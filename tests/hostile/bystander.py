"""A separate process that measures how long a server's answers take while others attack it.

It calls `/livez` on a new connection each time, and sends a row on a connection that stays open. It
prints the durations when its standard input closes.

    python -m tests.hostile.bystander HOST PORT PID [MODEL CLASSES]
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.end_to_end.programs import Server

__all__ = ["Bystander", "Durations"]

_INTERVAL_SECONDS = 0.02
_TIMEOUT_SECONDS = 120.0


class Durations:
    """Durations of the answers with status 200 to one kind of request.

    Other programs delay answers on a busy machine. The processor time that the server used
    meanwhile does not count their work; on a quiet machine both are equal.
    """

    def __init__(self, seconds: list[float], processor_seconds: list[float]) -> None:
        self.seconds = seconds
        self.processor_seconds = processor_seconds

    @property
    def longest(self) -> float:
        """The longest duration, in seconds."""
        return max(self.seconds)

    @property
    def longest_work(self) -> float:
        """The most processor time that the server used before an answer, in seconds."""
        return max(self.processor_seconds)

    @property
    def p99_work(self) -> float:
        """The 99th percentile of that."""
        return _quantile(self.processor_seconds, 0.99)

    def __repr__(self) -> str:
        durations = (self.longest, _quantile(self.seconds, 0.99), self.longest_work, self.p99_work)
        longest, p99, longest_work, p99_work = (round(1000 * seconds) for seconds in durations)
        return (
            f"{len(self.seconds)} answers in at most {longest} ms, p99 {p99} ms; "
            f"work of the server {longest_work} ms, p99 {p99_work} ms"
        )


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


class Bystander:
    """Context manager of the process. Its results are set at the end.

    Parameters
    ----------
    model, classes: whom to send rows to; without a model, only `/livez` is called.
    """

    livez: Durations
    calibrate: Durations

    def __init__(self, server: Server, model: str | None = None, classes: int = 4) -> None:
        place = urlsplit(server.url)
        self._arguments = [str(place.hostname), str(place.port), str(server.pid)]
        if model is not None:
            self._arguments += [model, str(classes)]

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
        self.livez, self.calibrate = (Durations(*durations) for durations in json.loads(output))
        assert self.livez.seconds


def main(host: str, port: str, pid: str, model: str = "", classes: str = "4") -> None:
    """Measure until standard input closes."""
    clock = (~int(pid) << 3) | 2  # the processor time of another process: clock_getcpuclockid(3)

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
    headers = {"Content-Type": "application/json"}
    connection_for_rows = connect()

    def calibrate() -> int:
        connection_for_rows.request("POST", f"/v1/models/{model}/calibrate?ids=0", body, headers)
        response = connection_for_rows.getresponse()
        response.read()
        return response.status

    stopped = threading.Event()
    results: list[tuple[list[float], list[float]]] = [([], []), ([], [])]
    calls = [call_livez, calibrate][: 2 if model else 1]
    threads = [
        threading.Thread(target=_repeat, args=(call, clock, stopped, *durations))
        for call, durations in zip(calls, results, strict=False)
    ]
    for call in calls:
        assert call() == 200, call
    for thread in threads:
        thread.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(results))


def _repeat(
    call: Callable[[], int],
    clock: int,
    stopped: threading.Event,
    seconds: list[float],
    processor_seconds: list[float],
) -> None:
    while not stopped.wait(_INTERVAL_SECONDS if seconds else 0):
        started, used = time.perf_counter(), time.clock_gettime(clock)
        try:
            status = call()
        except OSError:  # refused or closed: the attack holds all connections
            continue
        if status == 200:
            processor_seconds.append(time.clock_gettime(clock) - used)
            seconds.append(time.perf_counter() - started)


if __name__ == "__main__":
    main(*sys.argv[1:])
