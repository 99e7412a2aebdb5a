"""`recalib backup` and `recalib restore`: text and JSON output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from recalib.registry import Registry
from tests.cli.running import Cli
from tests.end_to_end.programs import recalib_command


def _registry(cli: Cli, home: str) -> Registry:
    folder = cli.folder / home
    return Registry(f"sqlite:///{folder / 'recalib.db'}", (folder / "blobs").as_uri())


def _filled(cli: Cli, home: str) -> str:
    """Make a registry with a key and a data set; return the blob's digest."""
    assert cli("keys", "create", "web", "--scope", "fit", "--home", home).status == 0
    registry = _registry(cli, home)
    with registry.transaction() as tx, registry.blobs.writer() as blob:
        blob.write(b"rows")
        model = tx.models.create("resnet", None, 2, "anna")
        tx.datasets.create(model, "d", blob.commit(), 1, 2, 4, "text/csv", "logits", {})
        digest = blob.digest
    registry.close()
    return digest


def test_backup_and_restore(cli: Cli) -> None:
    """Text output is one line, JSON lists the content; a second restore is rejected."""
    _filled(cli, "here")
    result = cli("backup", "b.zip", "--home", "here")
    assert (result.status, result.err) == (0, "")
    size = (cli.folder / "b.zip").stat().st_size
    assert result.out.startswith("saved ")
    assert result.out.endswith(f" and 1 blobs of 4 bytes to b.zip, {size} bytes\n")
    saved = cli("backup", "c.zip", "--home", "here", "--json").json
    assert (saved["file"], saved["database"], saved["blobs"]) == ("c.zip", "sqlite", 1)
    assert saved["rows"]["models"] == saved["rows"]["api_keys"] == 1
    assert saved["left_out"] == {}
    back = cli("restore", "c.zip", "--home", "there", "--json").json
    assert {key: back[key] for key in back} == {
        key: value for key, value in saved.items() if key not in ("file", "bytes")
    }
    assert "web: active" in cli("keys", "list", "--home", "there").out
    targets = [entry["target"] for entry in cli("audit", "--home", "here", "--json").json]
    assert targets[:2] == ["c.zip", "b.zip"]
    (entry,) = cli("audit", "--action", "restore", "--home", "there", "--json").json
    assert (entry["target"], entry["detail"]) == ("c.zip", f"as of {saved['made_at']}")
    again = cli("restore", "b.zip", "--home", "there")
    assert (again.status, again.out) == (2, "")
    assert again.err.startswith("error: the registry is not empty: ")
    forced = cli("restore", "b.zip", "--home", "there", "--force")
    assert forced.out.startswith("restored ")
    assert f", as of {saved['made_at'][:10]}" in forced.out


def test_errors_are_one_line(cli: Cli) -> None:
    for arguments, message in [
        (("backup", "b.zip", "--home", "none"), "error: home: found no "),
        (("restore", "none.zip", "--home", "there"), "error: from: found none.zip (No such file"),
        (("restore", "val.npz", "--home", "there"), "error: from: found val.npz, which is none"),
    ]:
        result = cli(*arguments)
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith(message)
        assert len(result.err.splitlines()) == 1
    assert not Path("b.zip").exists()
    assert not Path("none").exists()


@pytest.mark.slow
def test_left_out_blobs_are_reported(cli: Cli) -> None:
    digest = _filled(cli, "here")
    registry = _registry(cli, "here")
    Path(registry.blobs.path(digest)).unlink()
    registry.close()
    refused = cli("backup", "b.zip", "--home", "here")
    assert refused.status == 2
    assert refused.err == f"error: blob {digest} of data set d is missing or damaged\n"
    result = cli("backup", "b.zip", "--home", "here", "--leave-out-damaged")
    assert (result.status, result.err) == (0, f"warning: left out: blob {digest}, data set d\n")
    back = cli("restore", "b.zip", "--home", "there")
    assert f"without blob {digest}, data set d" in back.err


def test_stream_is_the_archive_and_nothing_else(cli: Cli) -> None:
    """A pipe that ends early is an error of one line."""
    _filled(cli, "here")
    command = recalib_command("backup", "-", "--home", cli.folder / "here")
    saved = subprocess.run(command, capture_output=True, check=True)
    (cli.folder / "b.zip").write_bytes(saved.stdout)
    assert cli("restore", "b.zip", "--home", "there").out.startswith("restored ")
    (entry,) = cli("audit", "--action", "backup", "--home", "here", "--json").json
    assert entry["target"] == "-"
    read_end, write_end = os.pipe()
    os.close(read_end)
    refused = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
    assert refused.stderr.startswith(b"error: to: found a stream (Broken pipe)")


def test_scheduled_backup_is_recorded(cli: Cli) -> None:
    _filled(cli, "here")
    assert cli("record-backup", "b.zip.age", "--home", "here").status == 0
    (entry,) = cli("audit", "--action", "scheduled_backup", "--home", "here", "--json").json
    assert entry["target"] == "b.zip.age"


def test_stream_excludes_json(cli: Cli) -> None:
    result = cli("backup", "-", "--json", "--home", "here")
    assert result.status == 2
    assert result.err.startswith("error: to: found standard output")
