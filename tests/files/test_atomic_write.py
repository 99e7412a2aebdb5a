"""Files are written whole, on every system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from recalib.files import write_atomically


def test_files_are_written_where_no_folder_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, which has neither the flag nor the permission."""

    def refuse(*_: object) -> NoReturn:
        raise PermissionError

    monkeypatch.delattr(os, "O_DIRECTORY")
    monkeypatch.setattr(os, "open", refuse)
    write_atomically(tmp_path / "a", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"content"
