"""What a long job does between its steps, so that short jobs do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pause:
    """Calls a function, at most once per interval.

    Parameters
    ----------
    share: the least time that the long job gets after a call, in multiples of what the call took.
    """

    def __init__(self, act: Callable[[], object], every_seconds: float, share: float = 0.0) -> None:
        self._act, self._every_seconds, self._share = act, every_seconds, share
        self._next = 0.0

    def __call__(self) -> None:
        start = time.monotonic()
        if start >= self._next:
            self._act()
            end = time.monotonic()
            self._next = end + max(self._every_seconds, self._share * (end - start))
