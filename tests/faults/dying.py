"""`python -m tests.faults.dying WHEN NTH STATEMENT COMMAND...`: a `recalib COMMAND` that is killed.

By SIGKILL from itself, so that the moment is exact: WHEN is `inside`, right after the NTH statement
that begins with STATEMENT and in the middle of its transaction, or `after`, once that transaction
is committed and before anybody has heard of it.
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
    """Return the command line of `recalib ARGUMENTS` that dies so."""
    command = [sys.executable, "-m", "tests.faults.dying", when, str(nth), statement]
    return [*command, *(str(one) for one in arguments)]


class _Death:
    def __init__(self, when: str, nth: int, statement: str) -> None:
        self._inside = when == "inside"
        self._left = nth
        self._statement = statement
        event.listen(Engine, "after_cursor_execute", self._executed)
        event.listen(Pool, "checkin", self._given_back)

    def _executed(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(self._statement):
            return
        self._left -= 1
        if self._left == 0:
            if self._inside:
                _die()
            connection.info["doomed"] = True

    def _given_back(self, _connection: Any, record: Any) -> None:
        # Committed by then.
        if record.info.get("doomed"):
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    when, nth, statement, *arguments = sys.argv[1:]
    _Death(when, int(nth), statement)
    main(arguments)
