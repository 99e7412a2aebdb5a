"""Exit status of the container probes of server and worker."""

from __future__ import annotations

import sys
from collections.abc import Callable

from recalib.errors import RecalibError


def probe_exit_status(probe: Callable[[], str]) -> int:
    """Return 0 if the probe finds no problem; otherwise print the problem and return 1.

    Parameters
    ----------
    probe: returns a problem, or an empty string if there is none; it may raise `RecalibError`.
    """
    try:
        problem = probe()
    except RecalibError as error:
        problem = str(error)
    if problem:
        sys.stderr.write(f"not ready: {problem}\n")
    return 1 if problem else 0
