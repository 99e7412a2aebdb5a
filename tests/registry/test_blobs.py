"""Blobs: whole or not there, named by their digest, gone when they were not committed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from recalib.errors import CorruptError, InputError, NotFoundError, UnavailableError
from recalib.registry import BlobStore
from tests.faults.disks import small_disk

_DATA = b"logits and labels"
_DIGEST = hashlib.sha256(_DATA).hexdigest()


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """An empty store, on disk and in memory."""
    if request.param == "file":
        return BlobStore((tmp_path / "blobs").as_uri())
    return BlobStore(f"memory://{uuid4().hex}")


def _files(store: BlobStore) -> list[str]:
    return [path.removeprefix(store.root) for path in store.filesystem.find(store.root)]


def _keep(store: BlobStore, data: bytes = _DATA) -> str:
    with store.writer() as blob:
        blob.write(data)
        return blob.commit()


def test_blob_can_be_removed_twice(store: BlobStore) -> None:
    digest = _keep(store)
    other = _keep(store, b"others")
    store.remove(digest)
    store.remove(digest)
    with pytest.raises(NotFoundError):
        store.open(digest)
    store.open(other).close()
    with pytest.raises(InputError):
        store.remove("../" + digest)


def test_committed_blob_can_be_read(store: BlobStore) -> None:
    """Counted and hashed on the way, under its digest, seekable."""
    with store.writer() as blob:
        blob.write(_DATA[:5])
        blob.write(_DATA[5:])
        assert (blob.size, blob.digest) == (len(_DATA), _DIGEST)
        assert blob.commit() == _DIGEST
    with store.open(_DIGEST) as file:
        file.seek(7)
        assert file.read() == _DATA[7:]
    store.verify(_DIGEST)
    assert _files(store) == [f"/{_DIGEST[:2]}/{_DIGEST}"]


def test_written_blob_can_be_checked_before_the_commit(store: BlobStore) -> None:
    """The temporary file is seekable; nothing can be added once it was looked at."""
    with store.writer() as blob:
        blob.write(_DATA)
        with blob.open_temporary() as file:
            file.seek(-6, os.SEEK_END)
            assert file.read() == b"labels"
        with pytest.raises(ValueError, match="before open_temporary"):
            blob.write(b"more")
        blob.commit()
    store.verify(_DIGEST)


def test_uncommitted_blob_is_removed(store: BlobStore) -> None:
    """Whether the block ends or an error leaves it."""
    with store.writer() as blob:
        blob.write(_DATA)
    with pytest.raises(RuntimeError), store.writer() as blob:
        _write_and_raise(blob.write)
    assert _files(store) == []
    with pytest.raises(NotFoundError, match=_DIGEST):
        store.open(_DIGEST)


def test_equal_blobs_are_stored_once(store: BlobStore) -> None:
    """The second writer's temporary file is dropped."""
    assert _keep(store) == _keep(store)
    assert len(_files(store)) == 1


def test_truncated_blob_is_detected_and_replaced(store: BlobStore) -> None:
    """`verify` reports it; uploading the bytes again repairs the blob."""
    _keep(store)
    store.filesystem.pipe_file(store.path(_DIGEST), _DATA[:3])
    with pytest.raises(CorruptError, match=_DIGEST):
        store.verify(_DIGEST)
    _keep(store)
    store.verify(_DIGEST)


def test_replaced_content_is_never_complete(store: BlobStore) -> None:
    """Its last chunk is withheld, and of a single chunk nothing is returned."""
    data = bytes(5 << 20)
    digest, small = _keep(store, data), _keep(store)
    assert b"".join(store.read_chunks(digest)) == data
    store.filesystem.pipe_file(store.path(digest), b"x" + data[1:])
    store.filesystem.pipe_file(store.path(small), b"x" + _DATA[1:])
    with pytest.raises(CorruptError, match=small):
        store.read_chunks(small)
    received: list[bytes] = []
    with pytest.raises(CorruptError, match=digest):
        received.extend(store.read_chunks(digest))
    assert 0 < len(b"".join(received)) < len(data)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", _DIGEST.upper(), _DIGEST + "\n"])
def test_blob_names_must_be_digests(store: BlobStore, digest: str) -> None:
    """No path gets through."""
    with pytest.raises(InputError, match="digest"):
        store.open(digest)


def test_leftovers_are_old_temporary_files(store: BlobStore) -> None:
    """With the digest of the blob, if the killed writer had committed it."""
    assert store.leftovers(-60) == []
    assert store.exists(_DIGEST) is False
    committed, unfinished = store.writer(), store.writer()
    with unfinished, committed as blob:
        blob.write(_DATA)
        blob.commit()
        assert store.exists(_DIGEST) is True
        assert store.leftovers(60) == []
        assert sorted(digest or "" for _, digest in store.leftovers(-60)) == ["", _DIGEST]
    assert store.leftovers(-60) == []


def test_unknown_kind_of_store_is_refused() -> None:
    """With what would be accepted."""
    with pytest.raises(InputError, match="blob_url"):
        BlobStore("carrier-pigeon://coop").open(_DIGEST)


def test_full_disk_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    """The room that the failed upload took is free again."""
    with small_disk(tmp_path / "small", 1) as folder:
        store = BlobStore(folder.as_uri())
        with pytest.raises(UnavailableError, match="no space left"), store.writer() as blob:
            _fill(blob.write)
        assert _files(store) == []
        _keep(store)


def test_full_device_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel's own full device, for machines that cannot mount a small disk."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    store = BlobStore(tmp_path.as_uri())
    link = tmp_path / "temporary" / "full"
    link.parent.mkdir()
    link.symlink_to("/dev/full")
    monkeypatch.setattr(store, "temporary_path", lambda: str(link))
    with pytest.raises(UnavailableError, match="no space left"), store.writer() as blob:
        _fill(blob.write)
    assert not link.is_symlink()


def _fill(write: Callable[[bytes], int]) -> None:
    for _ in range(40):
        write(bytes(100_000))


def _write_and_raise(write: Callable[[bytes], int]) -> None:
    write(_DATA)
    raise RuntimeError
