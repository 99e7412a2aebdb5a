"""Logging: a sentence with structured fields, as text or JSON, on standard error.

The fields of a line are those of `extra`, with `action` first, and those of the current request or
job (`request_id`, `job_id`), which `log_fields` and `set_log_fields` set. Field names are fixed;
text from outside occurs only in values. Values are escaped, so that a record is always one line.
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

from recalib.core.sanitize import sanitize_line
from recalib.settings import Settings

#: The access log: one line per request, if the setting `access_log` is on.
ACCESS = logging.getLogger("recalib.core.access")

_NO_FIELDS: Mapping[str, Any] = {}
_context_fields: ContextVar[Mapping[str, Any]] = ContextVar(
    "recalib_log_fields", default=_NO_FIELDS
)
#: Attributes of every record; all others come from `extra`.
_STANDARD_ATTRIBUTES = set(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def configure(settings: Settings) -> None:
    """Log to standard error in the format and from the level of the settings.

    If a library crashes the process (SIGSEGV, SIGBUS, SIGABRT), the log ends with the traceback of
    every thread.
    """
    with suppress(OSError, ValueError):  # standard error is not a file
        faulthandler.enable(sys.stderr)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if settings.log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    for existing_handler in list(root.handlers):
        root.removeHandler(existing_handler)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    ACCESS.setLevel(logging.INFO if settings.access_log else logging.CRITICAL)
    for name in (
        "alembic",
        "asyncio",
        "httpx",
        "httpx2",
        "httpcore",
        "botocore",
        "uvicorn",
        "uvicorn.error",
    ):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    # OpenTelemetry warns about each attempt to reach a collector; the final error is enough.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)


def set_log_fields(**fields: Any) -> None:
    """Set the fields of all later log lines of the current task."""
    _context_fields.set(fields)


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to all log lines of this block and of tasks that it starts."""
    token = _context_fields.set({**_context_fields.get(), **fields})
    try:
        yield
    finally:
        _context_fields.reset(token)


def record_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record and of the current request or job."""
    extra = {
        name: value for name, value in record.__dict__.items() if name not in _STANDARD_ATTRIBUTES
    }
    return {**_context_fields.get(), **extra}


class _JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: _to_json(value) for name, value in record_fields(record).items()},
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        # ASCII, since lone surrogates have no UTF-8.
        return json.dumps(document)


class _TextFormatter(logging.Formatter):
    """Formats a record as one line of text; traceback lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(
            f" {name}={sanitize_line(str(value))}" for name, value in record_fields(record).items()
        )
        message = sanitize_line(record.getMessage())
        line = f"{_format_time(record)} {record.levelname} {record.name}: {message}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            fields += "".join(f"\n    {sanitize_line(trace_line)}" for trace_line in trace)
        return line + fields


def _format_time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _to_json(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
