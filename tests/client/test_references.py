"""Data sets that stay where they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from recalib.client import InvalidRequestError, ResourceConflictError
from tests.client.either import Either
from tests.end_to_end.programs import Programs
from tests.files.examples import example, write_npz


@pytest.mark.slow
def test_files_are_referenced(
    kind: str, name: str, shared_programs: Programs, tmp_path: Path
) -> None:
    content = write_npz(*example(40, 4))
    folder = tmp_path / "root" / name
    folder.mkdir(parents=True)
    for letter in "ab":
        (folder / f"{letter}.npz").write_bytes(content)
    roots = (tmp_path / "root").as_uri() + "/{model}"
    with shared_programs.serve(dataset_roots=roots) as server, Either(kind, server.url) as client:
        client.create_model(name, 4)
        client.create_model(f"{name}-b", 4)
        uri = f"{folder.as_uri()}/*.npz"
        dataset = client.reference_dataset(name, "files", uri)
        assert (dataset.rows, dataset.uri) == (80, uri)
        digest = hashlib.sha256(content).hexdigest()
        uri = f"{folder.as_uri()}/a.npz"
        assert client.reference_dataset(name, "one", uri, digest=digest).rows == 40
        with pytest.raises(ResourceConflictError, match=r"/a\.npz"):
            client.download_dataset(name, "one", tmp_path / "back.npz")
        with pytest.raises(InvalidRequestError, match="RECALIB_DATASET_ROOTS"):
            client.reference_dataset(f"{name}-b", "one", uri)
