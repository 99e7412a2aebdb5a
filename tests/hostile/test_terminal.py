"""What comes from a file is shown on a terminal, and never obeyed by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from recalib.cli.main import main
from recalib.sanitize import sanitize_line, sanitize_text
from recalib.terminal import say, warn

#: Colour, a window's name, a title by an 8-bit control, a line over another, reversed text.
_EVIL = "\x1b[31m\x1b]0;owned\x07\x9b2J\rover\u202eesrever\x7f"


def _check(shown: str) -> None:
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\x7f"} & set(shown), shown
    assert r"\x1b[31m" in shown
    assert r"\u202e" in shown


def test_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, warnings, and a table's title, headings and cells."""
    say(_EVIL)
    warn(_EVIL)
    for place in ("title", "heading", "cell"):
        table = Table(title=_EVIL if place == "title" else None)
        table.add_column(_EVIL if place == "heading" else "x", no_wrap=True)
        table.add_row(_EVIL if place == "cell" else "x")
        say(table)
        _check(capsys.readouterr().out.replace("\n", ""))


def test_names_of_files(
    tmp_path: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an error, which is one line."""
    monkeypatch.chdir(str(tmp_path))
    with pytest.raises(SystemExit):
        main(["evaluate", f"{_EVIL}.npz"])
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown.out + shown.err)


@given(st.text())
def test_visible_text(text: str) -> None:
    """Text without controls stays as it is; what is shown is printable but for spaces."""
    shown = sanitize_text(text)
    assert not [one for one in shown if ord(one) < 32 and one not in "\t\n"]
    if text.isprintable():
        assert shown == text
    assert sanitize_text(shown) == shown
    line = sanitize_line(text)
    assert not set(line) & set("\t\n")
    assert sanitize_line(line) == line
    line.encode()  # whatever it was made of
