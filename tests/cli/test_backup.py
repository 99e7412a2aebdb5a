"""`recalib backup` and `recalib restore`: text and JSON output."""

from __future__ import annotations

import json
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


@pytest.mark.slow
def test_encrypted_backups_in_a_folder(cli: Cli) -> None:
    """Named after the time, the oldest are removed, and only the key restores one."""
    _filled(cli, "here")
    for name in ("key", "other"):
        key = cli("backup-key")
        assert (key.status, key.err) == (0, "")
        (cli.folder / name).write_text(key.out)
    folder = cli.folder / "backups"
    folder.mkdir()
    old = folder / "recalib-20260101T000000Z.zip.age"
    old.touch()
    saved = cli("backup", "backups", "--key-file", "key", "--keep", "1", "--home", "here", "--json")
    (file,) = folder.iterdir()
    assert file != old
    assert saved.json["file"] == f"backups/{file.name}"
    assert file.suffixes == [".zip", ".age"]
    (entry,) = cli("audit", "--action", "scheduled_backup", "--home", "here", "--json").json
    assert entry["target"] == file.name
    refused = cli("restore", f"backups/{file.name}", "--key-file", "other", "--home", "there")
    assert (refused.status, refused.out) == (2, "")
    assert "encrypted with another key" in refused.err
    assert not (cli.folder / "there" / "recalib.db").exists()
    back = cli("restore", f"backups/{file.name}", "--key-file", "key", "--home", "there")
    assert (back.status, back.err) == (0, "")
    assert "web: active" in cli("keys", "list", "--home", "there").out


def test_schedule_needs_a_folder(cli: Cli) -> None:
    for option in ("--keep", "--every"):
        result = cli("backup", "b.zip", option, "1", "--home", "here")
        assert result.status == 2
        assert "accepted: a folder, for --keep and --every" in result.err


def test_schedule_needs_its_key_at_the_start(cli: Cli) -> None:
    (cli.folder / "backups").mkdir()
    result = cli("backup", "backups", "--every", "1", "--key-file", "none", "--home", "here")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("error: key_file: found none (No such file")


@pytest.mark.slow
def test_schedule_survives_a_failed_backup(tmp_path: Path) -> None:
    """It logs the error, waits and ends with status 0 on SIGTERM."""
    command = recalib_command("backup", str(tmp_path), "--every", "1", "--home", "none")
    environment = {**os.environ, "RECALIB_LOG_FORMAT": "json"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = json.loads(process.stderr.readline())
        assert (line["level"], line["action"]) == ("error", "backup_failed")
        assert "found no " in line["message"]
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []
