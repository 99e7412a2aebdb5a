"""Encrypted backups: a round trip, and every change, other key or other format is refused."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import pytest
from pyrage import x25519

from recalib.errors import CorruptError, InputError, UnavailableError
from recalib.registry import Registry
from recalib.registry.backup import backup
from recalib.registry.backup_encryption import (
    MAGIC,
    decrypted,
    encrypted,
    new_key,
    read_key,
)
from recalib.registry.restore import read_manifest, restore
from tests.registry.scenes import all_rows

#: The size of an encrypted chunk of age.
_CHUNK_BYTES = 65_536 + 16
#: A key that is used here only.
_KEY = "AGE-SECRET-KEY-1EUF73JAKVXQTRFY0FPX9GH60VLH5USNCR46Z7GV433C8SUAFNMFQTF70GU"


@pytest.fixture
def registry(sqlite_registry: Registry) -> Registry:
    return sqlite_registry


@pytest.fixture
def key() -> x25519.Identity:
    return x25519.Identity.generate()


@pytest.fixture
def archive(registry: Registry, key: x25519.Identity, tmp_path: Path) -> Path:
    """An encrypted backup of four chunks."""
    with registry.transaction() as tx, registry.blobs.writer() as blob:
        blob.write(os.urandom(200_000))
        model = tx.models.create("resnet", None, 2, "anna")
        tx.datasets.create(model, "d", blob.commit(), 1, 2, 200_000, "text/csv", "logits", {})
        tx.api_keys.create("web", ["predict"])
    path = tmp_path / "backup.zip.age"
    backup(registry, path, key=key)
    assert path.stat().st_size > 3 * _CHUNK_BYTES
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Registry]:
    registry = Registry(f"sqlite:///{tmp_path / 'empty.db'}", (tmp_path / "empty").as_uri())
    yield registry
    registry.close()


@pytest.mark.slow
def test_encrypted_backup_restores_every_row(
    registry: Registry, empty: Registry, archive: Path, key: x25519.Identity
) -> None:
    manifest = restore(empty, archive, key=key)
    assert read_manifest(archive, key) == manifest
    rows, restored = all_rows(registry), all_rows(empty)
    assert [row.action for row in restored.pop("audit")][-1] == "restore"
    for changed in ("audit", "event_sequence"):
        rows.pop(changed)
    restored.pop("event_sequence")
    assert restored == rows
    (digest,) = manifest.blobs
    with registry.blobs.open(digest) as source, empty.blobs.open(digest) as copy:
        assert source.read() == copy.read()


def test_encrypted_backup_shows_nothing(archive: Path, key: x25519.Identity) -> None:
    """Neither content, nor the key's public part, with which a backup could be forged."""
    content = archive.read_bytes()
    assert content.startswith(MAGIC)
    for text in (b"resnet", b"PK\x03\x04", b"manifest", str(key.to_public()).encode()):
        assert text not in content


def _changes(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield changed archives with descriptions."""
    size = len(content)
    header_end = content.index(b"\n---") + 48
    positions = [0, 30, 60, 120, header_end, *range(header_end + 1, size, size // 29), size - 1]
    for position in positions:
        changed = bytearray(content)
        changed[position] ^= 1
        yield f"byte {position} of {size}", bytes(changed)
    for length in (0, 1, header_end, size // 2, size - _CHUNK_BYTES, size - 1):
        yield f"only {length} bytes", content[:length]
    yield "a byte more", content + b"\0"
    yield "twice", content + content
    chunks = header_end + 16 + 1
    first, second = content[chunks:][:_CHUNK_BYTES], content[chunks:][_CHUNK_BYTES:][:_CHUNK_BYTES]
    rest = content[chunks + 2 * _CHUNK_BYTES :]
    yield "chunks in another order", content[:chunks] + second + first + rest
    yield "without a chunk", content[:chunks] + second + rest


def test_changed_backup_is_refused_and_restores_nothing(
    empty: Registry, archive: Path, key: x25519.Identity, tmp_path: Path
) -> None:
    """Changes in the header, in every chunk and at the end; the database is not even created."""
    path = tmp_path / "changed"
    count = 0
    for description, content in _changes(archive.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(CorruptError, match="changed, incomplete, or encrypted with another"):
            restore(empty, path, key=key)
        assert not (tmp_path / "empty.db").exists(), description
        assert not list((tmp_path / "empty").rglob("*")), description
        count += 1
    assert count > 40


def test_other_key_is_refused(empty: Registry, archive: Path) -> None:
    with pytest.raises(CorruptError, match="encrypted with another key"):
        restore(empty, archive, key=x25519.Identity.generate())


def test_encrypted_backup_needs_the_key(empty: Registry, archive: Path) -> None:
    with pytest.raises(InputError, match=r"key_file: found none, and .* is encrypted"):
        restore(empty, archive)


def test_plain_backup_is_refused_with_a_key(
    registry: Registry, empty: Registry, key: x25519.Identity, tmp_path: Path
) -> None:
    """Otherwise anyone could replace an encrypted backup by a plain one."""
    backup(registry, tmp_path / "plain.zip")
    with pytest.raises(InputError, match="which is not encrypted"):
        restore(empty, tmp_path / "plain.zip", key=key)


class _FullDisk(io.BytesIO):
    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write(target: IO[bytes], key: x25519.Identity, chunks: Iterable[bytes]) -> None:
    with encrypted(target, key) as stream:
        for chunk in chunks:
            stream.write(chunk)


def test_full_disk_ends_the_backup_with_its_error(key: x25519.Identity) -> None:
    """The writer of the archive does not wait for the failed encryption."""
    with pytest.raises(OSError, match="No space left"):
        _write(_FullDisk(), key, [os.urandom(65_536)] * 100)


def test_error_of_the_backup_is_raised(key: x25519.Identity) -> None:
    with pytest.raises(ZeroDivisionError):
        _write(io.BytesIO(), key, (b"%d" % (1 // count) for count in (1, 0)))


def test_full_temporary_folder_ends_the_restore(
    archive: Path, key: x25519.Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", _FullDisk)
    with (
        archive.open("rb") as file,
        pytest.raises(UnavailableError, match=r"No space left.*TMPDIR"),
        decrypted(file, "backup", key),
    ):
        pytest.fail("the file is decrypted")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "with 0 keys"),
        (f"{_KEY}\n{_KEY}\n", "with 2 keys"),
        (_KEY[:-1] + "X", "whose key is damaged"),
        ("AGE-SECRET-KEY-\N{SNOWMAN}", "no text"),
        (None, "No such file"),
    ],
)
def test_key_file_without_one_key_is_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message) as excinfo:
        read_key(path)
    assert "AGE-SECRET-KEY" not in str(excinfo.value)


def test_key_file_of_age_keygen_is_read(tmp_path: Path) -> None:
    """It has comments before the key."""
    text = new_key()
    (tmp_path / "key").write_text(f"# created: 2026-11-22\n# public key: age1x\n{text}\n")
    assert str(read_key(tmp_path / "key")) == text
