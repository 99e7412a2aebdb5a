"""Sessions of onnxruntime that run calibrators."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from recalib.core.array_bytes import array_digest
from recalib.core.packages import is_installed

if TYPE_CHECKING:
    from recalib.calibrator.calibrator import Calibrator

#: Sessions that are kept for the next task of a worker process.
_MAX_SESSIONS = 8

_sessions: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


class CalibratorSession:
    """The session of a calibrator, which each process creates for itself on first use.

    A copy runs on one thread: engines have a process or a thread for each core. Equal copies in a
    process share a session.
    """

    #: 0 for one for each core.
    threads = 0
    shares_memory = False
    _is_copy = False
    #: The process that created the session, and the session.
    _created: tuple[int, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"threads": 1, "shares_memory": self.shares_memory, "_is_copy": True}

    def get(self, calibrator: Calibrator) -> Any:
        """Return the session, which always belongs to the same calibrator."""
        process = os.getpid()
        if self._created is None or self._created[0] != process:  # also after a fork
            create = partial(self._create, calibrator)
            if self._is_copy:
                digest = array_digest(calibrator.card.to_json(), calibrator.parameters)
                key = (process, digest, self.threads, self.shares_memory)
                self._created = process, _shared_session(key, create)
            else:
                self._created = process, create()
        return self._created[1]

    def _create(self, calibrator: Calibrator) -> Any:
        from recalib.calibrator.ort import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        if self.shares_memory:
            _share_memory()
            options.add_session_config_entry("session.use_env_allocators", "1")
        providers = ["CPUExecutionProvider"]
        # A session computes all outputs.
        graph = calibrator.common.to_onnx(probabilities_only=True)
        return onnxruntime.InferenceSession(graph, options, providers=providers)


@cache
def has_onnxruntime() -> bool:
    """Return whether the packages of a session are installed."""
    return is_installed("onnxruntime") and is_installed("onnx")


def _shared_session(key: Hashable, create: Callable[[], Any]) -> Any:
    """Return the session of `key`, created on first use; the latest eight are kept."""
    with _lock:  # one session, also if threads of a worker ask for it at the same time
        session = _sessions.pop(key, None) or create()
        _sessions[key] = session
        if len(_sessions) > _MAX_SESSIONS:
            _sessions.popitem(last=False)
        return session


@cache
def _share_memory() -> None:
    """Create the memory arena that sessions of this process share, once."""
    from recalib.calibrator.ort import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(memory, None)
