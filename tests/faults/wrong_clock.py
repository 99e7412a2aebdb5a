"""`python -m tests.faults.wrong_clock SECONDS COMMAND...`: `recalib COMMAND` with its clock ahead.

Only the process's clock changes, not the database's. Negative seconds set it back.
"""

from __future__ import annotations

import sys
import time

from recalib.cli import main

__all__ = ["command_ahead"]


def command_ahead(seconds: float, *arguments: object) -> list[str]:
    """Return the command line of `recalib ARGUMENTS` with that clock."""
    return [
        *(sys.executable, "-m", "tests.faults.wrong_clock", str(seconds)),
        *(str(argument) for argument in arguments),
    ]


if __name__ == "__main__":
    right, ahead = time.time, float(sys.argv[1])
    time.time = lambda: right() + ahead
    main(sys.argv[2:])
