"""`python -m tests.faults.dying WHEN NTH STATEMENT COMMAND...`: a `recalib COMMAND` that is killed.

The process sends SIGKILL to itself. WHEN is `inside`, after the NTH SQL statement that contains
STATEMENT and before its commit, or `after`, after the commit and before the response.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

from recalib.cli import main

__all__ = ["dying_command"]


def dying_command(when: str, nth: int, statement: str, *arguments: object) -> list[str]:
    """Return the command line of a `recalib ARGUMENTS` that kills itself."""
    command = [sys.executable, "-m", "tests.faults.dying", when, str(nth), statement]
    return [*command, *map(str, arguments)]


class _Death:
    def __init__(self, when: str, nth: int, statement: str) -> None:
        self._inside = when == "inside"
        self._left = nth
        self._statement = statement
        event.listen(Engine, "after_cursor_execute", self._executed)
        event.listen(Pool, "checkin", self._checked_in)

    def _executed(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self._statement not in statement:
            return
        self._left -= 1
        if self._left == 0:
            if self._inside:
                _die()
            connection.info["doomed"] = True

    def _checked_in(self, _connection: Any, record: Any) -> None:
        # The transaction is committed here.
        if record.info.get("doomed"):
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    when, nth, statement, *arguments = sys.argv[1:]
    _Death(when, int(nth), statement)
    main(arguments)
