"""`recalib serve`: server processes, and the workers that it starts beside them.

Workers are child processes, so that the server never loads torch. Their standard input is a pipe
from this process: when it closes, however this process ended, they finish and go.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from recalib.errors import UnavailableError
from recalib.registry import Registry
from recalib.settings import Settings
from service.access.shared_usage import USAGE_FILE, file_size
from service.shared_memory import shared_folder
from service.shutdown import GRACE_SECONDS

__all__ = ["EmbeddedWorkers", "serve"]

log = logging.getLogger(__name__)

#: A worker that ends is started again after this long, so that one that cannot start at all does
#: not spin.
_RESTART_SECONDS = 2.0
#: Long enough for a worker to give its job back to the queue.
_STOP_SECONDS = 15.0
#: A server process silent for this long is replaced; starting one takes seconds on a busy machine.
_HUNG_SECONDS = 30


class EmbeddedWorkers:
    """Worker processes that live while this context does, and are restarted when they die."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> EmbeddedWorkers:
        for _ in range(self.count):
            thread = threading.Thread(target=self._keep_one, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _keep_one(self) -> None:
        while not self._stopping.is_set():
            command = [sys.executable, "-m", "recalib.cli", "worker", "--embedded"]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                while process.poll() is None and not self._stopping.wait(0.2):
                    pass
                _end(process)
            if not self._stopping.is_set():
                log.warning(
                    "A worker process ended with status %s; starting another",
                    process.returncode,
                    extra={"action": "worker_restarted"},
                )
                self._stopping.wait(_RESTART_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    # One that is starting does not look at its input yet.
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def serve(settings: Settings, listener: socket.socket) -> None:
    """Bring the database up to date, start workers, and answer requests until told to stop.

    Parameters
    ----------
    listener: at the address to serve, so that what was announced is what is served.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    _export(settings)
    _prepare(settings)
    with _shared_metrics(settings.workers), EmbeddedWorkers(settings.job_workers):
        _answer(settings, listener)


def _answer(settings: Settings, listener: socket.socket) -> None:
    config = uvicorn.Config(
        "service.worker_process:create_app",
        factory=True,
        workers=settings.workers,
        http="httptools",
        ws="none",  # what is never spoken need not be loaded
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_worker_healthcheck=_HUNG_SECONDS,
    )
    if settings.workers > 1:
        processes = _Processes(config, sockets=[listener])
        processes.run()
        if processes.failed:
            sys.exit(STARTUP_FAILURE)
    else:
        uvicorn.Server(config).run(sockets=[listener])


class _Processes(Multiprocess):
    """Server processes, and what their supervisor is to say of them at its end."""

    #: Whether it ends because one of them could not start, and not because it was told to.
    failed = False

    def keep_subprocess_alive(self) -> None:
        told = self.should_exit.is_set()
        for one in self.processes:
            # Theirs alone from now on, or the question whether one lives that died this moment
            # would wait for as long as for one that hangs.
            one.child_conn.close()
        super().keep_subprocess_alive()
        self.failed = self.should_exit.is_set() and not told


def _prepare(settings: Settings) -> None:
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    registry.migrate()
    try:
        registry.blobs.sweep()
    except UnavailableError as error:  # what is in the database can be served without it
        log.warning("No leftovers removed: %s", error, extra={"action": "sweep_failed"})
    registry.close()


@contextlib.contextmanager
def _shared_metrics(processes: int) -> Iterator[None]:
    """Give several processes a folder to count in together, requests and what callers may ask."""
    if processes == 1:
        yield
        return
    with shared_folder() as folder:
        # Read when prometheus_client is imported, which only the server processes do.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        os.environ[USAGE_FILE] = str(folder / "ledger")
        with Path(os.environ[USAGE_FILE]).open("wb") as file:
            file.truncate(file_size(processes))
        yield


def _export(settings: Settings) -> None:
    """Hand the settings, as they are after the command line, to the processes started from here."""
    for name, value in settings.model_dump().items():
        os.environ[f"RECALIB_{name.upper()}"] = str(value)
