"""`recalib serve`: the server processes and the embedded workers.

Workers are child processes, so that the server never loads torch. Their standard input is a pipe
from this process. The pipe closes however this process ends, and the workers then stop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from recalib.errors import UnavailableError
from recalib.registry import Registry
from recalib.settings import Settings
from service.access.shared_usage import USAGE_FILE, file_size
from service.shared_memory import shared_folder
from service.shutdown import GRACE_SECONDS

log = logging.getLogger(__name__)

#: Wait before a worker is restarted: a worker that fails at startup must not be restarted in a busy
#: loop.
_RESTART_SECONDS = 2.0
#: Time for a worker to return its job to the queue before it is killed.
_STOP_SECONDS = 15.0
#: A server process silent for this long is replaced; starting one takes seconds on a busy machine.
_HEALTH_CHECK_SECONDS = 30
#: Descriptors of the listening socket, where there are enough. uvloop accepts one connection for
#: each of them in a cycle of the event loop, and under load a cycle takes milliseconds.
_MAX_ACCEPTS = 64


class EmbeddedWorkers:
    """Context manager that runs worker processes and restarts those that end."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> EmbeddedWorkers:
        for _ in range(self.count):
            thread = threading.Thread(target=self._run_worker, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run_worker(self) -> None:
        while not self._stopping.is_set():
            command = [sys.executable, "-P", "-m", "recalib", "worker", "--embedded"]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                while process.poll() is None and not self._stopping.wait(0.2):
                    pass
                _stop(process)
            if not self._stopping.is_set():
                log.warning(
                    "A worker process ended with status %s; starting another",
                    process.returncode,
                    extra={"action": "worker_restarted"},
                )
                self._stopping.wait(_RESTART_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    # A worker that is still starting does not read its standard input yet.
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def serve(settings: Settings, listener: socket.socket) -> None:
    """Migrate the database, start workers, and answer requests until a stop signal.

    Parameters
    ----------
    listener: a bound socket, so that the server has the address that was announced.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    _raise_descriptor_limit()
    _export(settings)
    _prepare(settings)
    with _shared_metrics(settings.workers), EmbeddedWorkers(settings.job_workers):
        _run_server(settings, listener)


def _raise_descriptor_limit() -> None:
    """Raise this process' limit of open files to what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems announce more than they accept
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run_server(settings: Settings, listener: socket.socket) -> None:
    config = uvicorn.Config(
        "service.worker_process:create_app",
        factory=True,
        workers=settings.workers,
        http="service.http.limited_protocol:LimitedProtocol",
        loop="uvloop",
        ws="none",  # unused, so its libraries are not loaded
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_worker_healthcheck=_HEALTH_CHECK_SECONDS,
    )
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    accepts = max(1, min(_MAX_ACCEPTS, descriptors // 256))
    with contextlib.ExitStack() as duplicates:
        sockets = [listener]
        sockets += (duplicates.enter_context(listener.dup()) for _ in range(accepts - 1))
        if settings.workers > 1:
            supervisor = _Supervisor(config, sockets=sockets)
            supervisor.run()
            if supervisor.failed:
                sys.exit(STARTUP_FAILURE)
        else:
            uvicorn.Server(config).run(sockets=sockets)


class _Supervisor(Multiprocess):
    """Supervisor of the server processes that records whether one could not start."""

    #: Whether it stops because a process could not start, and not because of a stop signal.
    failed = False

    def keep_subprocess_alive(self) -> None:
        was_stopping = self.should_exit.is_set()
        for process in self.processes:
            # Close our copy of the child's end. Otherwise the health check of a process that has
            # just died waits for the full timeout, as for a worker that hangs.
            process.child_conn.close()
        super().keep_subprocess_alive()
        self.failed = self.should_exit.is_set() and not was_stopping


def _prepare(settings: Settings) -> None:
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    registry.migrate()
    try:
        registry.sweep()
    except UnavailableError as error:  # serving does not need the cleanup
        log.warning("No leftovers removed: %s", error, extra={"action": "sweep_failed"})
    registry.close()


@contextlib.contextmanager
def _shared_metrics(processes: int) -> Iterator[None]:
    """Share metrics and the usage of callers among several processes, through files in a folder."""
    if processes == 1:
        yield
        return
    with shared_folder() as folder:
        # prometheus_client reads this at import, which happens only in the server processes.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        os.environ[USAGE_FILE] = str(folder / "ledger")
        with Path(os.environ[USAGE_FILE]).open("wb") as file:
            file.truncate(file_size(processes))
        yield


def _export(settings: Settings) -> None:
    """Pass the settings, including command-line options, to child processes as variables."""
    for name, value in settings.model_dump().items():
        os.environ[f"RECALIB_{name.upper()}"] = str(value)
