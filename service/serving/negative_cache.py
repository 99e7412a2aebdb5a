"""Cache of lookups that the registry answered with "not found"."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from recalib.errors import RecalibError

#: Lifetime of an entry. Repeated requests for a missing calibrator reach the database four times a
#: second, and a calibrator that has just been created is visible after this time at the latest.
TTL_SECONDS = 0.25
_MAX_ENTRIES = 4096
#: Longer keys are not cached: no valid name is that long, and they would fill the memory.
_MAX_KEY_LENGTH = 256


class NegativeCache:
    """Errors by model and selector, the newest few thousand; safe to use from threads."""

    def __init__(self) -> None:
        self._errors: OrderedDict[tuple[str, str], tuple[float, RecalibError]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, model: str, selector: str, error: RecalibError) -> None:
        """Store the registry's error."""
        if len(model) + len(selector) > _MAX_KEY_LENGTH:
            return
        with self._lock:
            self._errors[model, selector] = (time.monotonic(), error)
            self._errors.move_to_end((model, selector))
            if len(self._errors) > _MAX_ENTRIES:
                self._errors.popitem(last=False)

    def raise_if_fresh(self, model: str, selector: str) -> None:
        """Raise the stored error if it is younger than `TTL_SECONDS`."""
        entry = self._errors.get((model, selector))
        if entry is not None and time.monotonic() - entry[0] < TTL_SECONDS:
            raise entry[1].with_traceback(None)

    def get(self, model: str, selector: str) -> RecalibError | None:
        """Return the stored error, however old, or None."""
        entry = self._errors.get((model, selector))
        return None if entry is None else entry[1].with_traceback(None)

    def clear(self) -> None:
        """Remove all entries: the registry has changed."""
        with self._lock:
            self._errors.clear()
