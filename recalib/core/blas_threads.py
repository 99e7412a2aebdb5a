"""One thread of BLAS or torch for work that has threads or processes already."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

_lock = threading.Lock()
#: The contexts that are open in this process, and the limit of the first.
_open = 0
_limit: Any = None
#: The same of torch, and its threads before the first.
_torch_open = _torch_threads = 0


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in this process; the last open context restores the number.

    Sums of BLAS depend on its number of threads. BLAS threads also spin while they wait, which
    makes fits slow on a busy machine.
    """
    global _open, _limit
    with _lock:
        if not _open:
            _release_control()
            _limit = _threads().limit(limits=1, user_api="blas")
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                _release_control()
                _limit.restore_original_limits()
                _release_control()


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute with one thread here; the last open context restores the number.

    The number belongs partly to the process and partly to a thread. A context that restored what it
    found would keep the 1 of another.
    """
    global _torch_open, _torch_threads
    import torch

    with _lock:
        if not _torch_open:
            _torch_threads = torch.get_num_threads()
        _torch_open += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _torch_open -= 1
            if not _torch_open:
                torch.set_num_threads(_torch_threads)


def _release_control() -> None:
    """Let this thread set the limit.

    In newer versions of threadpoolctl, the limit of OpenBLAS belongs to the first thread that sets
    it, and calls in other threads do nothing.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of BLAS threads; creating it takes 30 ms.

    It knows the libraries that are loaded: those of NumPy and SciPy, which differ.
    """
    import_module("scipy.special")
    return ThreadpoolController()
