"""Workers that compute on parts of the data: threads, processes, or a cluster of Dask.

>>> with open_workers("local:2") as workers:
...     totals = list(workers.map(sum, [[1, 2], [3, 4]]))

A cluster is named as on the command line: `threads:2`, `processes:2`; `local:2`, a cluster of Dask
with two processes on this machine; `tcp://host:8786` and `tls://host:8786`, the scheduler of a
cluster that runs. Anyone who can reach a scheduler can run code on its workers.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar
from urllib.parse import urlsplit

from recalib.core.blas_threads import one_blas_thread
from recalib.core.packages import optional_packages
from recalib.errors import InputError, UnavailableError

T = TypeVar("T")
R = TypeVar("R")

_ACCEPTED = "threads:N, processes:N, local:N, tcp://HOST:PORT or tls://HOST:PORT"
#: Tasks that are submitted for each worker: one runs, and the next is ready.
_TASKS_PER_WORKER = 2
#: How often a cluster repeats a task whose worker ended.
_RETRIES = 3
_CONNECT_SECONDS = 20.0
#: The variables that Dask sets for worker processes. Its own limit of `malloc` returns each array
#: of 128 KiB or more to the system at once, so that all its pages are zeroed again: half of the
#: processor time of a fit. These limits keep memory for the next array.
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": 256 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}
#: Settings of a cluster on this machine: Dask's own need 5% of a core for an idle worker.
_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "5s",
    "distributed.admin.system-monitor.interval": "5s",
}
_MAX_WORKERS = 1024
#: Tasks of many items for each worker, and items of a task, whose results wait in memory.
_BATCHES_PER_WORKER = 4
_MAX_BATCH = 8


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

    def batch(self, items: int) -> int:
        """Return the number of items of each task: few tasks, but several for each worker."""
        return max(1, min(_MAX_BATCH, items // (_BATCHES_PER_WORKER * self.count)))

    def map(self, function: Callable[[T], R], items: Iterable[T], *, batch: int = 1) -> Iterator[R]:
        """Yield `function(item)` in the order of items; few results wait in memory.

        The function and the items are pickled for processes. The first error ends the iteration,
        and tasks that have not begun are cancelled.

        Parameters
        ----------
        batch: the number of items of a task. Dask needs about 10 ms of processor time for a task,
            which counts where an item takes little more.

        Raises
        ------
        UnavailableError: a worker process ended, more often than its task is repeated.
        """
        pending: deque[Future[list[R]]] = deque()
        rest = iter(items)
        of_batch = partial(_map_batch, function)
        try:
            while True:
                while len(pending) < _TASKS_PER_WORKER * self.count:
                    task = list(islice(rest, batch))
                    if not task:
                        break
                    with _translate_errors():
                        pending.append(self.executor.submit(of_batch, task))
                if not pending:
                    return
                with _translate_errors():
                    results = pending.popleft().result()
                yield from results
        finally:
            for future in pending:
                future.cancel()


def _map_batch(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    # Results must not depend on how many cores a worker has.
    with one_blas_thread():
        return [function(item) for item in items]


#: The name of a cluster, or workers that the caller has opened; None: this process.
Cluster = str | Workers | None


@contextlib.contextmanager
def open_workers(cluster: Cluster = None) -> Iterator[Workers]:
    """Start or connect to workers; they are released at the end.

    Parameters
    ----------
    cluster: see the module; None: one thread of this process. Open workers stay open.

    Raises
    ------
    InputError: the text names no cluster, Dask is not installed or has no certificates.
    UnavailableError: the cluster does not answer, or has no workers.
    """
    if isinstance(cluster, Workers):
        yield cluster
        return
    if cluster is None:
        with ThreadPoolExecutor(1) as executor:
            yield Workers(executor, 1)
        return
    if cluster.startswith(("tcp:", "tls:")):
        if not _has_port(cluster):
            raise InputError("cluster", found=repr(cluster)[:100], accepted=_ACCEPTED)
        with _dask(cluster) as workers:
            yield workers
        return
    kind, _, number = cluster.rpartition(":")
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


def _has_port(url: str) -> bool:
    """Return whether a URL has a host and a port."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and parts.port)
    except ValueError:  # the port is no number, or too large
        return False


@contextlib.contextmanager
def _dask(target: str | int) -> Iterator[Workers]:
    """Connect to a scheduler, or start a cluster of processes on this machine."""
    with optional_packages("cluster"):
        distributed: Any = import_module("distributed")
    with contextlib.ExitStack() as stack:
        address: Any = target
        if isinstance(target, int):
            dask: Any = import_module("dask")
            environment = dask.config.get(_ENVIRONMENT) | _MALLOC
            with dask.config.set({**_SETTINGS, _ENVIRONMENT: environment}):
                address = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=target,
                        threads_per_worker=1,
                        # A free port: that of the default may be in use.
                        dashboard_address="127.0.0.1:0",
                        scheduler_kwargs={"dashboard": False},
                        silence_logs=logging.CRITICAL,
                        # Processes of a test or a job must not fill the caller's folder.
                        local_directory=tempfile.gettempdir(),
                    )
                )
        try:
            client = distributed.Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise UnavailableError(f"no scheduler of Dask answers at {target}") from error
        except TypeError as error:  # of Dask, for tls:// without a context of SSL
            raise InputError(
                "cluster",
                found=f"{target} without certificates",
                accepted="ca-file and client.cert, client.key of distributed.comm.tls in the "
                "configuration of Dask",
            ) from error
        stack.enter_context(client)
        count = sum(client.nthreads().values())
        if not count:
            raise UnavailableError(f"the scheduler at {target} has no workers")
        executor = client.get_executor(pure=False, retries=_RETRIES)
        try:
            yield Workers(executor, count)
        finally:
            # To wait for the rest would take for ever after Ctrl-C, which ends local workers too.
            executor.shutdown(wait=False)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
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
