"""Downloads of data sets: content, memory, and errors."""

from __future__ import annotations

import hashlib
import socket
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from recalib.client import InvalidResponseError, ResourceNotFoundError, UnreachableError
from recalib.errors import InputError
from tests.client.either import Either
from tests.client.flaky import DATASET, Flaky, closes, says
from tests.files.examples import example, write_npz

LOGITS, LABELS = example(40, 4)
PART = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart"


def description(content: bytes) -> dict[str, object]:
    size, digest = len(content), hashlib.sha256(content).hexdigest()
    return {**DATASET, "size_bytes": size, "digest": digest}


def test_downloaded_file_is_the_uploaded_file(client: Either, name: str, tmp_path: Path) -> None:
    client.create_model(name, 4)
    (tmp_path / "val.npz").write_bytes(write_npz(LOGITS, LABELS))
    dataset = client.upload_dataset(name, "val", tmp_path / "val.npz", progress=False)
    fractions: list[float] = []
    downloaded = client.download_dataset(
        name,
        "val",
        str(tmp_path / "back.npz"),
        progress=lambda share, text: fractions.append(share),
    )
    assert downloaded == dataset
    assert (tmp_path / "back.npz").read_bytes() == (tmp_path / "val.npz").read_bytes()
    assert fractions[-1] == 1
    with pytest.raises(ResourceNotFoundError, match="dataset 'test' does not exist"):
        client.download_dataset(name, "test", tmp_path / "test.npz")
    with pytest.raises(InputError, match=r"destination: .*back.csv; accepted: .* \.npz"):
        client.download_dataset(name, "val", tmp_path / "back.csv")
    with pytest.raises(InputError, match="No such file"):
        client.download_dataset(name, "val", tmp_path / "absent" / "back.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.npz", "val.npz"]


def test_retry_replaces_an_incomplete_file(
    client_of: Callable[..., Either], flaky: Flaky, tmp_path: Path
) -> None:
    content = b"content"
    flaky.will(says(200, description(content)), closes(PART), says(503), says(200, content))
    client_of(flaky.url).download_dataset("m", "d", tmp_path / "d.npz", progress=False)
    assert (tmp_path / "d.npz").read_bytes() == content


def test_wrong_or_incomplete_content_leaves_no_file(
    client_of: Callable[..., Either], flaky: Flaky, tmp_path: Path
) -> None:
    (tmp_path / "d.npz").write_bytes(b"old")
    for act, error, message in (
        (says(200, b"other"), InvalidResponseError, "has other bytes than"),
        (closes(PART), UnreachableError, "no response"),
    ):
        flaky.will(says(200, description(b"right")), act)
        with pytest.raises(error, match=message):
            client_of(flaky.url).download_dataset("m", "d", tmp_path / "d.npz", progress=False)
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(
    client_of: Callable[..., Either], flaky: Flaky, tmp_path: Path
) -> None:
    """A file of 48 MiB is received in pieces of 1 MiB."""
    piece, count = b"x" * 2**20, 48
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(piece)
    size = count * len(piece)

    def send(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(count):
            connection.sendall(piece)

    flaky.will(says(200, {**DATASET, "size_bytes": size, "digest": digest.hexdigest()}), send)
    client = client_of(flaky.url)
    tracemalloc.start()
    client.download_dataset("m", "d", tmp_path / "d.npz", progress=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "d.npz").stat().st_size == size
    assert peak < 24e6
