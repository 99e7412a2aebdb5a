"""Sessions of onnxruntime that copies of a calibrator in one process share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

#: Sessions that are kept for the next task of a worker process.
_MAX_SESSIONS = 8

_sessions: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def shared_session(key: Hashable, create: Callable[[], Any]) -> Any:
    """Return the session of `key`, created on first use; the latest eight are kept."""
    with _lock:  # one session, also if threads of a worker ask for it at the same time
        session = _sessions.pop(key, None) or create()
        _sessions[key] = session
        if len(_sessions) > _MAX_SESSIONS:
            _sessions.popitem(last=False)
        return session
