"""The folder that server processes share, and its removal after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from service import shared_memory as shared
from service.shared_memory import shared_folder


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate place for the test: other servers can run on this machine."""
    monkeypatch.setattr(shared, "_MEMORY", tmp_path)
    return tmp_path


def test_each_server_has_a_folder_until_it_stops(memory: Path) -> None:
    """A new server does not remove folders of running servers."""
    with shared_folder() as first:
        (first / "counters.db").write_bytes(b"1")
        with shared_folder() as second:
            assert {first, second} == set(memory.iterdir())
        assert (first / "counters.db").exists()
    assert list(memory.iterdir()) == []


def test_folders_of_killed_servers_are_removed(memory: Path) -> None:
    """Its lock is free; a folder without a lock belongs to others or is being created."""
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
    """The folder is then among the temporary files."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(shared, "_MEMORY", memory / "none")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with shared_folder() as folder:
        assert folder.parent == temporary
