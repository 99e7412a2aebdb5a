"""What a long job does between its steps, so that short jobs do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pause:
    """Calls a function, at most once per interval."""

    def __init__(self, act: Callable[[], object], every_seconds: float) -> None:
        self._act, self._every_seconds = act, every_seconds
        self._next = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._act()
            self._next = time.monotonic() + self._every_seconds
