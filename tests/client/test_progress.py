"""Bars, where somebody sees them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import textwrap

import pytest

from recalib.client.progress import progress_reporter

_SCRIPT = """
    from recalib.client.progress import progress_reporter

    with progress_reporter("upload [red]:smile:", True) as report:
        for done in range(11):
            report(done / 10, f"{done} of 10 MB")
"""


def test_a_bar_on_a_terminal() -> None:
    """With names as they are; on standard error, so that output stays clean."""
    reader, writer = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_SCRIPT)],
        stdout=subprocess.PIPE,
        stderr=writer,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        check=True,
    )
    os.close(writer)
    output = b""
    while piece := _read(reader):
        output += piece
    os.close(reader)
    assert process.stdout == b""
    assert b"upload [red]:smile:: 10 of 10 MB" in output


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody writes any more
        return b""


@pytest.mark.parametrize("progress", [True, False])
def test_nothing_elsewhere(capfd: pytest.CaptureFixture[str], progress: bool) -> None:
    with progress_reporter("upload", progress) as report:
        report(0.5, "5 of 10 MB")
    assert capfd.readouterr() == ("", "")
