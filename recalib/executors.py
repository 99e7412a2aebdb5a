"""Workers that compute on parts of the data: threads, processes, or a cluster of Dask.

>>> with open_workers("local:2") as workers:
...     totals = list(workers.map(sum, [[1, 2], [3, 4]]))

A cluster is named as on the command line: `threads:2`, `processes:2`; `local:2`, a cluster of Dask
with two processes on this machine; or `tcp://host:8786` and `tls://host:8786`, the scheduler of a
cluster that runs. Anyone who can reach a scheduler can run code on its workers.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from typing import Any, TypeVar

from recalib.errors import InputError, UnavailableError

__all__ = ["Workers", "open_workers"]

T = TypeVar("T")
R = TypeVar("R")

_ACCEPTED = "threads:N, processes:N, local:N, tcp://HOST:PORT or tls://HOST:PORT"
#: Tasks that are submitted for each worker: one runs, and the next is ready.
_TASKS_PER_WORKER = 2
#: How often Dask repeats a task whose worker ended.
_RETRIES = 3
_CONNECT_SECONDS = 20.0
_MAX_WORKERS = 1024


class Workers:
    """An executor, and how many tasks it runs at a time.

    Parameters
    ----------
    executor: as in `concurrent.futures`.
    count: tasks at a time.
    """

    def __init__(self, executor: Executor, count: int) -> None:
        self.executor = executor
        self.count = count

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield `function(item)` in the order of items; few results wait in memory.

        The function and the items are pickled for processes. The first error ends the iteration,
        and tasks that have not begun are cancelled.

        Raises
        ------
        UnavailableError: a worker process ended, more often than its task is repeated.
        """
        pending: deque[Future[R]] = deque()
        rest = iter(items)
        try:
            while True:
                while len(pending) < _TASKS_PER_WORKER * self.count:
                    try:
                        item = next(rest)
                    except StopIteration:
                        break
                    with _translated():
                        pending.append(self.executor.submit(function, item))
                if not pending:
                    return
                with _translated():
                    result = pending.popleft().result()
                yield result
        finally:
            for future in pending:
                future.cancel()


@contextlib.contextmanager
def open_workers(cluster: str | None = None) -> Iterator[Workers]:
    """Start or connect to workers; they are released at the end.

    Parameters
    ----------
    cluster: see the module; None: one thread of this process.

    Raises
    ------
    InputError: the text names no cluster, or Dask is not installed.
    UnavailableError: the scheduler does not answer.
    """
    if cluster is None:
        with ThreadPoolExecutor(1) as executor:
            yield Workers(executor, 1)
        return
    kind, _, number = cluster.partition(":")
    if kind in ("tcp", "tls"):
        with _dask(cluster) as workers:
            yield workers
        return
    count = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0
    if kind not in ("threads", "processes", "local") or not 1 <= count <= _MAX_WORKERS:
        raise InputError("cluster", found=repr(cluster)[:100], accepted=_ACCEPTED)
    if kind == "threads":
        with ThreadPoolExecutor(count) as executor:
            yield Workers(executor, count)
    elif kind == "processes":
        # Forked processes would inherit threads of NumPy and Arrow in an unknown state.
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as executor:
            yield Workers(executor, count)
    else:
        with _dask(count) as workers:
            yield workers


@contextlib.contextmanager
def _dask(target: str | int) -> Iterator[Workers]:
    """Connect to a scheduler, or start a cluster of processes on this machine."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise InputError(
            "cluster",
            found=f"{target!r} without the package distributed",
            accepted="pip install 'recalib[cluster]'",
        ) from error
    with contextlib.ExitStack() as stack:
        address: Any = target
        if isinstance(target, int):
            address = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=target,
                    threads_per_worker=1,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    # Processes of a test or a job must not fill the caller's folder.
                    local_directory=tempfile.gettempdir(),
                )
            )
        try:
            client = distributed.Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise UnavailableError(f"no scheduler of Dask answers at {target}") from error
        stack.enter_context(client)
        count = sum(client.nthreads().values())
        if not count:
            raise UnavailableError(f"the scheduler at {target} has no workers")
        with client.get_executor(pure=False, retries=_RETRIES) as executor:
            yield Workers(executor, count)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate the errors of executors whose processes ended."""
    try:
        yield
    except BrokenProcessPool as error:
        raise UnavailableError(
            "a worker process ended; it may have run out of memory (local:N repeats its work)"
        ) from error
    except Exception as error:
        if type(error).__name__ == "KilledWorker":  # of Dask, which may not be installed
            raise UnavailableError(f"workers end while they compute one part: {error}") from error
        raise
