"""`recalib upload`: a file, or files that stay where they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from recalib.client import ContradictionError, RefusedError
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.client.either import Either
from tests.end_to_end.programs import Programs
from tests.files.examples import example, write_npz

__all__ = ["cli"]


@pytest.mark.slow
def test_file_is_uploaded_and_referenced(
    cli: Cli, kind: str, name: str, shared_programs: Programs, tmp_path: Path
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
        to = ("--server", server.url, "--model", name)
        cli.write("a.npz", content)
        result = cli("upload", "a.npz", *to, "--name", "file")
        assert (result.status, result.out) == (
            0, f"data set file of {name}: 40 rows, {len(content):,} bytes\n"
        )  # fmt: skip
        uri = f"{folder.as_uri()}/*.npz"
        result = cli("upload", "--uri", uri, *to, "--name", "files", "--json")
        assert (result.json["rows"], result.json["uri"]) == (80, uri)
        dataset = client.reference_dataset(name, "files", uri)
        assert (dataset.rows, dataset.uri) == (80, uri)
        digest = hashlib.sha256(content).hexdigest()
        uri = f"{folder.as_uri()}/a.npz"
        assert client.reference_dataset(name, "one", uri, digest=digest).rows == 40
        with pytest.raises(ContradictionError, match=r"/a\.npz"):
            client.download_dataset(name, "one", tmp_path / "back.npz")
        with pytest.raises(RefusedError, match="RECALIB_DATASET_ROOTS"):
            client.reference_dataset(f"{name}-b", "one", uri)
        for options in (["a.npz", "--uri", uri], [], ["a.npz", "--digest", digest]):
            result = cli("upload", *options, *to, "--name", "wrong")
            assert result.status == 2, result.err
