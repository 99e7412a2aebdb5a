"""Text from files is shown on a terminal without control sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from recalib.cli.main import main
from recalib.core.sanitize import sanitize_line, sanitize_text
from recalib.reporting.terminal import say, warn

#: Colour, a window name, an 8-bit control, an overwritten line, reversed text.
_EVIL = "\x1b[31m\x1b]0;owned\x07\x9b2J\rover\u202eesrever\x7f"


def _check(text: str) -> None:
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\x7f"} & set(text), text
    assert r"\x1b[31m" in text
    assert r"\u202e" in text


def test_printed_text_is_sanitized(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, warnings, and the title, headings and cells of a table."""
    say(_EVIL)
    warn(_EVIL)
    for place in ("title", "heading", "cell"):
        table = Table(title=_EVIL if place == "title" else None)
        table.add_column(_EVIL if place == "heading" else "x", no_wrap=True)
        table.add_row(_EVIL if place == "cell" else "x")
        say(table)
        _check(capsys.readouterr().out.replace("\n", ""))


def test_file_names_in_errors_are_sanitized(
    tmp_path: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one line."""
    monkeypatch.chdir(str(tmp_path))
    with pytest.raises(SystemExit):
        main(["evaluate", f"{_EVIL}.npz"])
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(captured.out + captured.err)


@given(st.text())
def test_visible_text_is_unchanged(text: str) -> None:
    """Text without controls is unchanged; the result is printable or white space."""
    sanitized = sanitize_text(text)
    assert not [item for item in sanitized if ord(item) < 32 and item not in "\t\n"]
    if text.isprintable():
        assert sanitized == text
    assert sanitize_text(sanitized) == sanitized
    line = sanitize_line(text)
    assert not set(line) & set("\t\n")
    assert sanitize_line(line) == line
    line.encode()  # valid for any input
