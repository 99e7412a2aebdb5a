"""A cluster of Ray as an executor of `concurrent.futures`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Any, TypeVar

from recalib.errors import InputError, UnavailableError

__all__ = ["RayExecutor", "open_ray"]

R = TypeVar("R")

#: Attempts to start a cluster. Ray gives its node 30 s, which a busy machine may exceed.
_STARTS = 4


class RayExecutor(Executor):
    """Tasks of Ray, each of one processor.

    Parameters
    ----------
    ray: the module, with a connection.
    retries: how often a task is repeated whose worker ended.

    Raises
    ------
    UnavailableError: the cluster has no processors.
    """

    def __init__(self, ray: Any, retries: int) -> None:
        self._ray = ray
        self._call = ray.remote(_call).options(max_retries=retries)
        #: Tasks at a time.
        self.count = int(ray.cluster_resources().get("CPU", 0))
        if not self.count:
            raise UnavailableError("the cluster of Ray has no processors")

    def submit(self, function: Callable[..., R], /, *arguments: Any, **keywords: Any) -> Future[R]:
        """Start a task. A task that runs is interrupted if its future is cancelled."""
        reference = self._call.remote(function, arguments, keywords)
        future: Future[R] = Future()

        def finish(answer: Future[Any]) -> None:
            if not future.set_running_or_notify_cancel():
                return
            error = answer.exception()
            if error is None:
                future.set_result(answer.result())
            else:
                future.set_exception(self._translate(error))

        def cancel(done: Future[R]) -> None:
            if done.cancelled():
                self._ray.cancel(reference)

        future.add_done_callback(cancel)
        reference.future().add_done_callback(finish)
        return future

    def _translate(self, error: BaseException) -> BaseException:
        """Return the error of the task itself, or `UnavailableError` if its workers ended."""
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.RayTaskError) and isinstance(error.cause, Exception):
            return error.cause
        if isinstance(error, exceptions.RayError):
            return UnavailableError(f"workers of Ray end while they compute one part: {error}")
        return error


@contextlib.contextmanager
def open_ray(target: str | int, *, retries: int) -> Iterator[RayExecutor]:
    """Connect to a cluster (`ray://host:port`), or start a cluster of that many processes here.

    A process has one connection to Ray: an open one is used, and stays open.

    Parameters
    ----------
    retries: how often a task is repeated whose worker ended.

    Raises
    ------
    InputError: Ray is not installed.
    UnavailableError: the cluster does not start or answer, or has no processors.
    """
    # Otherwise Ray reports its use to its authors.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        name = f"ray:local:{target}" if isinstance(target, int) else target
        raise InputError(
            "cluster",
            found=f"{name} without the package ray",
            accepted="pip install 'recalib[ray]'",
        ) from error
    with contextlib.ExitStack() as stack:
        if ray.is_initialized():
            pass
        elif isinstance(target, int):
            _start(ray, target)
            stack.callback(ray.shutdown)
        else:
            stack.callback(_connect(ray, target).disconnect)
        yield RayExecutor(ray, retries)


def _start(ray: Any, processes: int) -> None:
    for remaining in reversed(range(_STARTS)):
        try:
            # RAY_ADDRESS may be that of another cluster.
            _initialise(ray, "local", num_cpus=processes, include_dashboard=False)
            return
        except Exception as error:  # the class that Ray raises
            ray.shutdown()
            if not remaining:
                raise UnavailableError(f"a cluster of Ray does not start: {error}") from error


def _connect(ray: Any, address: str) -> Any:
    try:
        return _initialise(ray, address)
    except (ConnectionError, OSError, RuntimeError) as error:
        raise UnavailableError(f"no cluster of Ray answers at {address}: {error}") from error


def _initialise(ray: Any, address: str, **options: Any) -> Any:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        return ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    finally:
        # Ray replaces the handler of a worker, which ends its job.
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _call(function: Callable[..., R], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> R:
    return function(*arguments, **keywords)
