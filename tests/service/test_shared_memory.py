"""The folder that server processes share, and what a killed server leaves of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from service import shared_memory as shared
from service.shared_memory import shared_folder


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own: other servers run on this machine."""
    monkeypatch.setattr(shared, "_MEMORY", tmp_path)
    return tmp_path


def test_each_server_has_a_folder_until_it_stops(memory: Path) -> None:
    """One that begins leaves those alone whose servers live."""
    with shared_folder() as first:
        (first / "counters.db").write_bytes(b"1")
        with shared_folder() as second:
            assert {first, second} == set(memory.iterdir())
        assert (first / "counters.db").exists()
    assert list(memory.iterdir()) == []


def test_folders_of_killed_servers_are_removed(memory: Path) -> None:
    """Its lock went with it; a folder without a lock is another's, or just being made."""
    abandoned, other = memory / "recalib-shared-left", memory / "recalib-shared-other"
    for folder in (abandoned, other):
        folder.mkdir()
        (folder / "counters.db").write_bytes(b"1")
    (abandoned / "lock").touch()
    with shared_folder() as folder:
        assert {folder, other} == set(memory.iterdir())


def test_temporary_files_replace_missing_shared_memory(
    memory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Has it among its temporary files."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(shared, "_MEMORY", memory / "none")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with shared_folder() as folder:
        assert folder.parent == temporary
