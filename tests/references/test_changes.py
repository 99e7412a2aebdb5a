"""Files of a manifest that change, vanish, or cannot be reached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recalib.errors import CorruptError, UnavailableError
from recalib.references import Manifest, ReferencedFile, list_referenced, listing


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """The manifest of two files."""
    for name in "ab":
        (tmp_path / f"{name}.npz").write_bytes(b"content")
    root = tmp_path.as_uri()
    files = (ReferencedFile(*file, "npz", "float64", 1) for file in list_referenced(root, root))
    return Manifest(root, root, 2, tuple(files))


def test_later_files_of_any_kind_are_left_out(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.npz").symlink_to("none")
    (tmp_path / "d.npz").symlink_to("/etc/passwd")
    (tmp_path / "e::f.npz").write_bytes(b"")
    os.mkfifo(tmp_path / "g.npz")
    monkeypatch.setattr(listing, "MAX_FILES", 2)
    manifest.check_unchanged()


def test_change_is_corrupt(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "b.npz"
    path.write_bytes(b"other content")
    with pytest.raises(CorruptError, match=r"b\.npz has changed .* 13 bytes"):
        manifest.check_unchanged()
    path.unlink()
    with pytest.raises(CorruptError, match=r"b\.npz does not exist any more"):
        manifest.check_unchanged()
    path.symlink_to("/etc/passwd")
    with pytest.raises(CorruptError, match=r"b\.npz, a link to another place"):
        manifest.check_unchanged()


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), OSError(5, "at http://store")])
def test_outage_is_unavailable(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Expired credentials are no reason to give up the data set."""

    def stat(path: Path) -> None:
        raise error

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(UnavailableError, match=r"cannot be read now") as caught:
        manifest.check_unchanged()
    assert "http://store" not in str(caught.value)
