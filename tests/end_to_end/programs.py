"""Recalib's programs as real processes, and operations on them.

Nothing depends on timing: tests wait for a condition, up to a generous limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import numpy as np
import psutil
from numpy.typing import NDArray

from tests.service.conftest import NPZ, npz

__all__ = [
    "PATIENCE_SECONDS",
    "Programs",
    "Server",
    "half_an_upload",
    "paused",
    "probabilities_of",
    "recalib_command",
    "received",
    "until",
]

PATIENCE_SECONDS = 120.0
#: This variable marks every process that a test started, children included.
_MARK = "TEST_PROGRAMS_MARK"

T = TypeVar("T")


def recalib_command(*arguments: object) -> list[str]:
    """Return the command line of `recalib ARGUMENTS`."""
    return [sys.executable, "-m", "recalib", *(str(argument) for argument in arguments)]


def until(look: Callable[[], T], what: str) -> T:
    """Poll `look` until it returns a true value, and return that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return value


class Programs:
    """Starts programs, and ends those that remain.

    Parameters
    ----------
    folder: for the home, logs and temporary files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        #: Folder for temporary files of the programs.
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._mark = uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []
        #: Returns the command line of `recalib ARGUMENTS`.
        self.command: Callable[..., list[str]] = recalib_command

    def start(self, *arguments: object, **settings: object) -> subprocess.Popen[bytes]:
        """Start `recalib ARGUMENTS` with RECALIB_... from `settings`; stderr goes to a log."""
        with (self.folder / f"log-{len(self._started)}").open("wb") as log:
            process = subprocess.Popen(
                self.command(*arguments),
                env=self.environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._started.append(process)
        return process

    def environment(self, **settings: object) -> dict[str, str]:
        """Return an environment with these settings and no other RECALIB_ variables."""
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("RECALIB_", "PROMETHEUS"))
        }
        variables = {f"RECALIB_{name.upper()}": str(value) for name, value in settings.items()}
        usual = {
            "RECALIB_HOME": str(self.home),
            # Any free port: tests run in parallel.
            "RECALIB_GRPC_PORT": "0",
            # Each poll costs processor time that other tests need.
            "RECALIB_POLL_SECONDS": "0.2",
            "RECALIB_LOAD_SECONDS": str(PATIENCE_SECONDS),
            "TMPDIR": str(self.temporary),
            _MARK: self._mark,
        }
        return {**inherited, **usual, **variables}

    def serve(self, *arguments: object, verify: Any = True, **settings: object) -> Server:
        """Start `recalib serve` on a free port, and return once it is ready.

        Parameters
        ----------
        verify: how its certificate is, where it has one; as httpx2 has it.
        """
        if "--port" not in arguments:
            arguments = ("--port", 0, *arguments)
        process = self.start("serve", "--json", *arguments, **settings)
        line = _stdout(process).readline()
        assert line, f"the server did not start: {self.log_of(process)}"
        return Server(process, json.loads(line), lambda: self.log_of(process), verify)

    def worker(self, **settings: object) -> subprocess.Popen[bytes]:
        """Start `recalib worker`."""
        return self.start("worker", **settings)

    def log_of(self, process: subprocess.Popen[bytes]) -> str:
        """Return what the process has written to stderr so far."""
        return (self.folder / f"log-{self._started.index(process)}").read_text()

    def alive(self) -> list[psutil.Process]:
        """Return every running process that `start` created, descendants included."""
        ports = []
        # `psutil.process_iter` keeps objects of ended processes, and `kill` of such an object does
        # nothing to a new process with the same pid.
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                running = process.status() != psutil.STATUS_ZOMBIE
                if running and process.environ().get(_MARK) == self._mark:
                    ports.append(process)
        return ports

    def clean_up(self) -> None:
        """Kill all remaining processes."""
        # Repeat: a supervisor may be starting another child at this moment.
        for _ in range(100):
            for process in self.alive():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            for child in self._started:
                child.wait(PATIENCE_SECONDS)
            if not self.alive():
                break
        for child in self._started:
            _stdout(child).close()


class Server:
    """A running server and the operations of its users."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        announced: dict[str, Any],
        log: Callable[[], str],
        verify: Any = True,
    ) -> None:
        self.process = process
        self.url: str = announced["url"]
        self.grpc_url: str = announced["grpc_url"]
        self.pid: int = announced["pid"]
        self.log = log
        self.client = httpx2.Client(base_url=self.url, timeout=PATIENCE_SECONDS, verify=verify)
        until(self._ready, "the server to be ready")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    def children(self, command: str) -> list[psutil.Process]:
        """Return running children whose command line has the word `command`."""
        processes = []
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE and command in child.cmdline():
                    processes.append(child)
        return processes

    def listening(self, url: str) -> set[int]:
        """Return the server processes that listen at the port of `url`."""
        port = int(url.rpartition(":")[2])
        own = psutil.Process(self.process.pid)
        ports = set()
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                for connection in process.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                        ports.add(process.pid)
        return ports

    def ask(self, verb: str, path: str, **more: Any) -> Any:
        """Return the JSON of a request that must succeed."""
        answer = self.client.request(verb, path, **more)
        assert answer.is_success, f"{verb} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def model(self, name: str = "digits", classes: int = 4, **settings: Any) -> None:
        """Register a model."""
        self.ask("POST", "/v1/models", json={"name": name, "classes": classes, **settings})

    def upload(self, logits: NDArray[Any], labels: NDArray[Any], model: str = "digits") -> Any:
        """Upload validation data as `validation`."""
        path = f"/v1/models/{model}/datasets/validation"
        return self.ask("PUT", path, content=npz(logits, labels), headers=NPZ)

    def ask_fit(self, model: str = "digits", **options: Any) -> str:
        """Ask for a fit on `validation`; returns the job's id."""
        body = {"dataset": "validation", **options}
        job: str = self.ask("POST", f"/v1/models/{model}/calibrators", json=body)["id"]
        return job

    def job(self, job: str) -> dict[str, Any]:
        """Return the job as it is now."""
        answer: dict[str, Any] = self.ask("GET", f"/v1/jobs/{job}")
        return answer

    def finished(self, job: str) -> dict[str, Any]:
        """Wait for the job's end, which must be success."""
        until(lambda: self.job(job)["state"] not in ("queued", "running"), f"job {job}")
        job_record = self.job(job)
        assert job_record["state"] == "succeeded", job_record
        return job_record

    def versions(self, model: str = "digits") -> list[dict[str, Any]]:
        """Return all versions of a model, in order."""
        items: list[dict[str, Any]] = self.ask("GET", f"/v1/models/{model}/calibrators")["items"]
        return items

    def promote(self, version: int, model: str = "digits", alias: str = "champion") -> None:
        """Point the alias at `version`."""
        self.ask("PUT", f"/v1/models/{model}/aliases/{alias}", json={"version": version})

    def calibrate(self, logits: NDArray[Any], model: str = "digits", **query: Any) -> Any:
        """Return the answer to a calibrate request in JSON."""
        body = {"logits": logits.tolist()}
        return self.ask("POST", f"/v1/models/{model}/calibrate", json=body, params=query)

    def _ready(self) -> bool:
        assert self.process.poll() is None, f"the server ended: {self.log()}"
        with contextlib.suppress(httpx2.TransportError):
            return self.client.get("/readyz").status_code == 200
        return False


@contextlib.contextmanager
def paused(process: psutil.Process) -> Iterator[None]:
    """SIGSTOP now, SIGCONT at the end unless the process is gone by then."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def half_an_upload(server: Server, body: bytes) -> socket.socket:
    """Send the head and the first half of an upload; returns the connection."""
    place = urlsplit(server.url)
    head = (
        f"PUT /v1/models/digits/datasets/validation HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/x-npz\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection((place.hostname, place.port))
    connection.sendall(head.encode() + body[: len(body) // 2])
    return connection


def received(programs: Programs) -> int:
    """Return how many bytes of unfinished uploads have reached the disk."""
    return sum(path.stat().st_size for path in programs.home.glob("blobs/temporary/*"))


def probabilities_of(answer: Any) -> NDArray[np.float32]:
    """Return the probabilities in a calibrate answer."""
    return np.array(answer["probabilities"], dtype=np.float32)


def _stdout(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout
