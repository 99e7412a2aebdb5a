"""Log lines: a sentence with structured fields, for people or as JSON, on standard error.

Fields are what code gives as `extra`, `action` first, and what `bound` adds to every line of a
request or a job: `request_id`, `job_id`. Their names are ours; whatever came from outside is a
value, and a line stays one line, whatever a name in it holds.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from recalib.sanitize import visible_line
from recalib.settings import Settings

__all__ = ["ACCESS", "about", "bound", "configure", "fields_of"]

#: Gets a line for each request, where that is wanted.
ACCESS = logging.getLogger("recalib.access")

_NOTHING: Mapping[str, Any] = {}
_here: ContextVar[Mapping[str, Any]] = ContextVar("recalib_log_fields", default=_NOTHING)
#: What every record has; the rest is `extra`.
_USUAL = set(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def configure(settings: Settings) -> None:
    """Write this process's log to standard error as the settings say.

    Where a library crashes (SIGSEGV, SIGBUS, SIGABRT), what each thread was doing ends it.
    """
    with suppress(OSError, ValueError):  # a standard error that is no file
        faulthandler.enable(sys.stderr)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format == "json" else _Text())
    root = logging.getLogger()
    for one in list(root.handlers):
        root.removeHandler(one)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    ACCESS.setLevel(logging.INFO if settings.access_log else logging.CRITICAL)
    for name in ("alembic", "asyncio", "httpx", "httpcore", "botocore", "uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    # Each of its tries to reach a collector that is away is a warning; that it gave up is enough.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)


def about(**fields: Any) -> None:
    """Say what this task's lines are about from now on."""
    _here.set(fields)


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Add fields to every line that is written in this block, and in tasks begun in it."""
    before = _here.set({**_here.get(), **fields})
    try:
        yield
    finally:
        _here.reset(before)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record's own fields and those of the request or job that it is about."""
    own = {name: value for name, value in record.__dict__.items() if name not in _USUAL}
    return {**_here.get(), **own}


class _Json(logging.Formatter):
    """An object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: _plain(value) for name, value in fields_of(record).items()},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # In ASCII: half of a surrogate pair has no UTF-8.
        return json.dumps(line)


class _Text(logging.Formatter):
    """A line for people; a traceback's lines are indented, so that none looks like another's."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(
            f" {name}={visible_line(str(value))}" for name, value in fields_of(record).items()
        )
        said = visible_line(record.getMessage())
        line = f"{_time(record)} {record.levelname} {record.name}: {said}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            fields += "".join(f"\n    {visible_line(one)}" for one in trace)
        return line + fields


def _time(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
