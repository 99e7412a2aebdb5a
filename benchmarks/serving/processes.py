"""Server processes that listen on 127.0.0.1 and always end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

#: Importing a model server takes seconds, more on a busy machine.
_PATIENCE_SECONDS = 180
_GRACE_SECONDS = 15


class Tree:
    """A process with its descendants."""

    def __init__(self, first: subprocess.Popen[bytes], log: Path) -> None:
        self.first = first
        self.log = log
        self._root = psutil.Process(first.pid)

    def processes(self) -> list[psutil.Process]:
        """Return the running processes."""
        self.first.poll()  # an ended process stays a zombie until it is polled
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._root, *self._root.children(recursive=True)]
        return []

    def cpu_seconds(self) -> float:
        """Return the processor time of all processes so far."""
        return sum(sum(times[:2]) for times in self._each(psutil.Process.cpu_times))

    def resident_bytes(self) -> int:
        """Return the memory of all processes in bytes; shared pages count in each."""
        return sum(memory.rss for memory in self._each(psutil.Process.memory_info))

    def _each(self, ask: Callable[[psutil.Process], Any]) -> Iterator[Any]:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield ask(process)


@contextlib.contextmanager
def running(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Tree]:
    """Run a server with its output in `folder`/log; end all its processes with the context."""
    log = folder / "log"
    tree = None
    try:
        with log.open("wb") as output, _signals_later():
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C must reach only this process, which ends the server.
                start_new_session=True,
            )
            tree = Tree(process, log)
        yield tree
    finally:
        if tree is not None:
            _end(tree)


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM: otherwise a process that has just started would survive."""
    waiting: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: waiting.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in waiting:
        signal.raise_signal(number)


def _end(tree: Tree) -> None:
    process = tree.first
    # Listed before the first ends: an orphan is no longer listed as its descendant.
    started = tree.processes()
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    for member in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    # Processes that were started meanwhile belong to the session of the first.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(started, _GRACE_SECONDS)


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def until(ready: Callable[[], bool], tree: Tree, name: str) -> None:
    """Wait until a condition holds; on timeout, raise with the end of the log."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not ready():
        if not tree.processes() or time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not come up:\n{tree.log.read_text()[-3000:]}")
        time.sleep(0.1)
