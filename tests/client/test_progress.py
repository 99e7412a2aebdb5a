"""Progress bars of uploads."""

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


def test_progress_bar_on_a_terminal() -> None:
    """Names are unmodified; the bar is on standard error."""
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
    except OSError:  # Linux reports a closed writer this way
        return b""


@pytest.mark.parametrize("progress", [True, False])
def test_no_progress_bar_without_a_terminal(
    capfd: pytest.CaptureFixture[str], progress: bool
) -> None:
    with progress_reporter("upload", progress) as report:
        report(0.5, "5 of 10 MB")
    assert capfd.readouterr() == ("", "")
