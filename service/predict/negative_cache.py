"""What requests asked for and the registry does not have."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from recalib.errors import RecalibError

__all__ = ["FRESH_SECONDS", "Absent"]

#: How long an answer counts. Whoever asks for what does not exist, again and again, reaches the
#: database four times a second; whoever has just created it waits no longer than this.
FRESH_SECONDS = 0.25
_MOST = 4096
#: No name is longer, and what does not exist may be: such requests do not fill the memory.
_LONGEST = 256


class Absent:
    """Errors by model and selector, the newest few thousand."""

    def __init__(self) -> None:
        self._errors: OrderedDict[tuple[str, str], tuple[float, RecalibError]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, model: str, selector: str, error: RecalibError) -> None:
        """Remember that the registry answered with `error`."""
        if len(model) + len(selector) > _LONGEST:
            return
        with self._lock:
            self._errors[model, selector] = (time.monotonic(), error)
            self._errors.move_to_end((model, selector))
            if len(self._errors) > _MOST:
                self._errors.popitem(last=False)

    def refuse(self, model: str, selector: str) -> None:
        """Raise the registry's error if it is fresh."""
        noted = self._errors.get((model, selector))
        if noted is not None and time.monotonic() - noted[0] < FRESH_SECONDS:
            raise noted[1].with_traceback(None)

    def last(self, model: str, selector: str) -> RecalibError | None:
        """Return the registry's last answer, however old, or None."""
        noted = self._errors.get((model, selector))
        return None if noted is None else noted[1].with_traceback(None)

    def clear(self) -> None:
        """Forget everything: something has changed."""
        with self._lock:
            self._errors.clear()
