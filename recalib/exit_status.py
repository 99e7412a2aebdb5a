"""How a probe of a container engine ends: the two programs have one each."""

from __future__ import annotations

import sys
from collections.abc import Callable

from recalib.errors import RecalibError

__all__ = ["status_of"]


def status_of(ask: Callable[[], str]) -> int:
    """Return the exit status of a probe, having said on standard error what is wrong.

    Parameters
    ----------
    ask: returns what is wrong, empty where nothing is, or raises it.
    """
    try:
        wrong = ask()
    except RecalibError as error:
        wrong = str(error)
    if wrong:
        sys.stderr.write(f"not ready: {wrong}\n")
    return 1 if wrong else 0
