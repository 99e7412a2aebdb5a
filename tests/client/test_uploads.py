"""Uploads: content, memory, and errors."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from recalib import files
from recalib.client import (
    InvalidRequestError,
    InvalidResponseError,
    ResourceConflictError,
    ResourceNotFoundError,
)
from recalib.client.uploads import Upload, array_upload, file_upload
from recalib.errors import InputError, UnsupportedError
from tests.client.either import Either, asyncio_is_slow
from tests.client.flaky import DATASET, Flaky, resets, says
from tests.files.examples import example, write_npz, write_safetensors

LOGITS, LABELS = example(40, 4)


def content_of(upload: Upload) -> bytes:
    return b"".join(upload.chunks())


@settings(max_examples=40)
@given(
    arrays.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 30), st.integers(2, 6)),
        elements=st.floats(-1000, 1000, width=16),
    ),
    st.booleans(),
)
def test_uploaded_arrays_are_unchanged(logits: Any, reversed: bool) -> None:
    """The server's reader returns equal values, dtype and labels."""
    logits = np.asfortranarray(logits)[::-1] if reversed else logits
    labels = np.arange(len(logits)) % logits.shape[1]
    upload = array_upload(logits, labels, "logits")
    content = content_of(upload)
    assert len(content) == upload.size
    assert upload.digest == hashlib.sha256(content).hexdigest()
    read = files.read(io.BytesIO(content), format="safetensors")
    assert read.logits.dtype == logits.dtype
    np.testing.assert_array_equal(read.logits, logits)
    np.testing.assert_array_equal(read.labels, labels)


def test_uploaded_arrays_are_valid_safetensors() -> None:
    """The safetensors library writes and reads the same content."""
    import safetensors.numpy

    ours = safetensors.numpy.load(content_of(array_upload(LOGITS, LABELS, "logits")))
    theirs = safetensors.numpy.load(write_safetensors(LOGITS, LABELS))
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])


@pytest.mark.parametrize("suffix", [*files.SUFFIXES, ".NPZ"])
def test_file_name_determines_the_format(tmp_path: Path, suffix: str) -> None:
    """The content type states the format."""
    path = tmp_path / f"val{suffix}"
    path.write_bytes(b"x")
    upload = file_upload(path)
    assert files.MEDIA_TYPES[upload.media_type] == files.SUFFIXES[suffix.lower()]


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Arrays and files are sent in a few pieces of 1 MB."""
    logits = np.zeros((200_000, 40), np.float32)
    labels = np.zeros(200_000, np.int64)
    path = tmp_path / "val.npz"
    np.savez(path, logits=logits, labels=labels)
    for upload in (array_upload(logits, labels, "logits"), file_upload(path)):
        assert upload.size > 32e6
        tracemalloc.start()
        sent = sum(len(piece) for piece in upload.chunks())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sent == upload.size
        assert peak < 5e6


def test_retry_sends_the_whole_file(
    client_of: Callable[..., Either], flaky: Flaky, tmp_path: Path
) -> None:
    """The whole file arrives after failed attempts."""
    content = write_npz(*example(40, 4))
    (tmp_path / "val.npz").write_bytes(content)
    response = {**DATASET, "digest": hashlib.sha256(content).hexdigest()}
    flaky.will(says(200, {}), resets, says(502), says(201, response))
    fractions: list[float] = []
    client_of(flaky.url).upload_dataset(
        "m",
        "d",
        str(tmp_path / "val.npz"),
        progress=lambda share, text: fractions.append(share),
    )
    _, *sent = flaky.received
    assert [request.body for request in sent] == [content] * 3
    assert {request.headers["content-length"] for request in sent} == {str(len(content))}
    assert {request.headers["content-type"] for request in sent} == {"application/x-npz"}
    assert "transfer-encoding" not in sent[0].headers
    assert fractions == [1, 1, 1]


def test_digest_mismatch_is_rejected(client_of: Callable[..., Either], flaky: Flaky) -> None:
    """The client compares the server's digest with its own."""
    flaky.will(says(200, {}), says(201, {**DATASET, "digest": "0" * 64}))
    with pytest.raises(InvalidResponseError, match="other bytes than"):
        client_of(flaky.url).upload_dataset("m", "d", LOGITS, LABELS, progress=False)


@pytest.mark.parametrize("change", [b"", b"x" * 3_000_000])
def test_file_that_changes_during_upload_is_rejected(
    client_of: Callable[..., Either], flaky: Flaky, tmp_path: Path, change: bytes
) -> None:
    """A file whose length changes during the upload is rejected."""
    path = tmp_path / "val.csv"
    path.write_bytes(b"x" * 2_000_000)

    def cut(connection: Any, over: Any) -> None:
        path.write_bytes(change)
        says(200, {})(connection, over)

    flaky.will(cut, says(201, DATASET))
    with pytest.raises(InputError, match="whose size changes while it is read"):
        client_of(flaky.url).upload_dataset("m", "d", path, progress=False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("nowhere.npz",), InputError, "No such file"),
        ((".",), UnsupportedError, r"found \. \(a folder\)"),
        (("x" * 300,), UnsupportedError, "a name ending in ''"),
        (("val.txt",), UnsupportedError, "a name ending in '.txt'"),
        (("empty.npz",), InputError, "empty"),
        (("val.npz", LABELS), InputError, "labels and a file"),
        ((LOGITS,), InputError, "labels: found none"),
        ((LOGITS, LABELS[1:]), InputError, "39 labels"),
        ((LOGITS * np.nan, LABELS), InputError, "NaN"),
        ((LOGITS, LABELS + 4), InputError, "integers from 0 to 3"),
    ],
)
def test_invalid_uploads_are_rejected(
    client_of: Callable[..., Either],
    flaky: Flaky,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[Any, ...],
    error: type[Exception],
    message: str,
) -> None:
    """Nothing is sent."""
    monkeypatch.chdir(tmp_path)
    for name in ("val.txt", "val.npz"):
        Path(name).write_bytes(b"x")
    Path("empty.npz").touch()
    with pytest.raises(error, match=message):
        client_of(flaky.url).upload_dataset("m", "d", *arguments)
    assert flaky.received == []


@asyncio_is_slow
def test_server_rejections_are_raised(client: Either, name: str, tmp_path: Path) -> None:
    """The server's message is kept, even when it responds before the upload ends."""
    logits, labels = np.zeros((1000, 4)), np.zeros(1000, int)
    with pytest.raises(ResourceNotFoundError, match="does not exist"):
        client.upload_dataset(name, "val", logits, labels, progress=False)
    client.create_model(name, 4)
    with pytest.raises(InvalidRequestError, match="found 3 classes; accepted: 4"):
        client.upload_dataset(name, "val", logits[:, :3], labels, progress=False)
    (tmp_path / "bad.npz").write_bytes(b"PK no zip")
    with pytest.raises(InvalidRequestError, match="data: found a file that cannot be read as npz"):
        client.upload_dataset(name, "val", tmp_path / "bad.npz", progress=False)
    assert list(client.list_datasets(name)) == []

    first = client.upload_dataset(name, "val", logits, labels, progress=False)
    assert client.upload_dataset(name, "val", logits, labels, progress=False) == first
    with pytest.raises(ResourceConflictError, match="exists with other data"):
        client.upload_dataset(name, "val", logits + 1, labels, progress=False)
    with pytest.raises(
        InvalidRequestError, match=r"body: found .* bytes; accepted: at most 1000000"
    ):
        client.upload_dataset(
            name, "large", np.zeros((100_000, 50)), np.zeros(100_000, int), progress=False
        )


@asyncio_is_slow
def test_probabilities(client: Either, name: str) -> None:
    client.create_model(name, 4)
    rows = np.full((20, 4), 0.25, np.float16)
    dataset = client.upload_dataset(
        name, "val", rows, np.arange(20) % 4, input="probabilities", progress=False
    )
    assert dataset.input == "probabilities"
    assert dataset.metrics["nll"].value == pytest.approx(np.log(4))
