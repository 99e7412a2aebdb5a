"""Logs: one line per record, with known fields, as text and JSON."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from recalib.observability import logs
from recalib.observability.logs import configure, log_fields, set_log_fields
from recalib.settings import Settings

LOG = logging.getLogger("service.tests")
#: Hostile names: newline, terminal colour, Unicode line break, invalid text.
HOSTILE = "x\r\n2026-01-01 INFO root: all is well\x1b[31m\u2028\x00\ud800\x9b"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, restored after the test."""
    root, before = logging.getLogger(), {}
    names = ("alembic", "asyncio", "httpx", "httpcore", "botocore", "uvicorn", "uvicorn.error")
    names += ("opentelemetry",)
    for name in (*names, logs.ACCESS.name):
        before[name] = logging.getLogger(name).level
    level, handlers = root.level, list(root.handlers)
    yield root
    root.setLevel(level)
    root.handlers[:] = handlers
    for name, value in before.items():
        logging.getLogger(name).setLevel(value)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_json_log_line(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings(log_format="json"))
    with log_fields(job_id="7", kind="fit"), log_fields(kind="train"):
        LOG.info("Half of %s.", "it", extra={"action": "half", "rows": 3, "odd": {1}})
    LOG.warning("Later.")
    first, second = (json.loads(line) for line in lines(capsys))
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info", "logger": "service.tests", "message": "Half of it.", "job_id": "7",
        "kind": "train", "action": "half", "rows": 3, "odd": "{1}",
    }  # fmt: skip
    assert set(second) == {"time", "level", "logger", "message"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_external_text_cannot_start_a_log_line(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """It cannot send terminal escapes or add a field."""
    configure(Settings(log_format=form))
    with log_fields(request_id=HOSTILE):
        LOG.error("No model %s.", HOSTILE, extra={"action": "none"})
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            LOG.exception("Failed.")
    text = capsys.readouterr().err
    assert not set(text) & set("\r\x1b\u2028\x00\ud800\x9b")
    if form == "json":
        first, second = (json.loads(line) for line in text.splitlines())
        assert first["request_id"] == HOSTILE
        assert set(first) == {"time", "level", "logger", "message", "request_id", "action"}
        assert "ValueError" in second["exception"]
    else:
        beginnings = [line for line in text.splitlines() if not line.startswith("    ")]
        assert len(beginnings) == 2
        assert "action=none" in beginnings[0]
        assert r"x\r\n2026-01-01" in beginnings[0]


def test_log_levels_and_access_log(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(Settings(log_level="warning"))
    LOG.info("unheard")
    logs.ACCESS.info("unheard")
    logging.getLogger("uvicorn.error").info("unheard")
    LOG.warning("heard")
    assert len(lines(capsys)) == 1
    configure(Settings(access_log=True))
    configure(Settings(access_log=True))  # a second call adds no handler
    set_log_fields(request_id="a")
    logs.ACCESS.info("heard")
    set_log_fields()
    assert [line.partition(" ")[2] for line in lines(capsys)] == [
        "INFO recalib.core.access: heard request_id=a"
    ]


@pytest.mark.parametrize(("name", "value"), [("log_format", "xml"), ("log_level", "loud")])
def test_unknown_formats_and_levels_are_rejected(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_crash_traceback_is_logged() -> None:
    """A crash below Python is in the log of the process."""
    program = (
        "import os, signal; from recalib.observability.logs import configure; "
        "from recalib.settings import Settings; configure(Settings()); "
        "os.kill(os.getpid(), signal.SIGSEGV)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert process.returncode == -signal.SIGSEGV
    assert b"Fatal Python error: Segmentation fault" in process.stderr
    assert b'File "<string>", line 1' in process.stderr
