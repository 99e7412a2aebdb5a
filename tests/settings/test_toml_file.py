"""Settings from one TOML file, which overrides defaults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recalib.cli.context import load_settings
from recalib.errors import InputError
from recalib.settings import Settings
from recalib.settings.toml_file import origin_of
from tests.cli.conftest import cli
from tests.cli.running import Cli

__all__ = ["cli"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file named by RECALIB_CONFIG."""
    path = tmp_path / "recalib.toml"
    monkeypatch.setenv("RECALIB_CONFIG", str(path))
    return path


def test_file_overrides_defaults_and_environment_overrides_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["port = 9000", "workers = 3", 'host = "::1"', "lease_seconds = 7"]
    lines.append("require_keys = true")
    file.write_text("\n".join(lines))
    monkeypatch.setenv("RECALIB_PORT", "9001")
    (tmp_path / "host").write_text("127.0.0.2\n")
    monkeypatch.setenv("RECALIB_HOST_FILE", str(tmp_path / "host"))
    settings = Settings(job_workers=5)
    assert (settings.port, settings.host, settings.workers) == (9001, "127.0.0.2", 3)
    assert (settings.lease_seconds, settings.require_keys, settings.job_workers) == (7.0, True, 5)
    assert [origin_of(name) for name in ("port", "host", "workers", "max_rows")] == [
        "RECALIB_PORT", f"RECALIB_HOST_FILE, {tmp_path / 'host'}", f"workers in {file}", "default",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "prot in {file}: found an unknown setting; accepted: port"),
        (
            "RECALIB_PORT = 1",
            "found an unknown setting; accepted: the settings of docs/settings.md",
        ),
        ('config = "other.toml"', "config in {file}: found an unknown setting"),
        ("[server]\nport = 1", "found an unknown setting"),
        ("port = [1]", "port in {file}: found a list; accepted: text, a number or a boolean"),
        ("port = ", "RECALIB_CONFIG: found {file} ("),
        ("\x00", "RECALIB_CONFIG: found {file} ("),
        ("#" * (1 << 16) + "\n", "over 65536 bytes"),
        (None, "No such file or directory"),
    ],
)
def test_invalid_file_content_is_rejected(file: Path, text: str | None, message: str) -> None:
    """The error names the file and the probable setting."""
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as excinfo:
        Settings()
    assert message.format(file=file) in str(excinfo.value)


def test_invalid_utf8_is_rejected(file: Path) -> None:
    file.write_bytes(b"port = \xff")
    with pytest.raises(InputError, match="not text in UTF-8"):
        Settings()


def test_invalid_value_error_uses_the_name_in_the_file(file: Path) -> None:
    file.write_text("port = 'eighty'")
    with pytest.raises(InputError, match=f"port in {file}: found 'eighty'; accepted: .*integer"):
        load_settings()


def test_doctor_shows_every_setting_and_no_secret(
    file: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting has its source; variables that are not settings are reported."""
    file.write_text("port = 9000")
    monkeypatch.setenv("RECALIB_BLOB_URL", "s3://id:hush-hush@bucket/x")
    monkeypatch.setenv("RECALIB_OIDC_CLIENT_SECRET", "hush-hush")
    url = "postgresql://u:hush-hush@127.0.0.1:1/x?sslpassword=hush-hush"
    settings = cli("doctor", "--settings", "--database-url", url, "--json").json
    by_name = {setting["name"]: setting for setting in settings}
    assert list(by_name) == list(Settings.model_fields)
    assert by_name["port"] == {
        "name": "port", "value": 9000, "default": 8000, "from": f"port in {file}"
    }  # fmt: skip
    assert by_name["database_url"]["value"] == "postgresql://***@127.0.0.1:1/x?sslpassword=***"
    assert by_name["database_url"]["from"] == "command line"
    assert by_name["blob_url"]["value"] == "s3://***@bucket/x"
    assert by_name["max_rows"]["from"] == "default"
    people = cli("doctor", "--settings", "--database-url", url)
    assert f"port = 9000  (port in {file})" in people.out
    assert "hush" not in people.out + str(settings)
    monkeypatch.delenv("RECALIB_BLOB_URL")
    monkeypatch.delenv("RECALIB_OIDC_CLIENT_SECRET")
    for name in os.environ:  # variables of the tests
        if name.startswith("RECALIB_") and name[8:].lower() not in Settings.model_fields:
            monkeypatch.delenv(name)
    monkeypatch.setenv("RECALIB_BLOBS", "x")
    monkeypatch.setenv("RECALIB_DATABSE_URL", "x")
    monkeypatch.setenv("RECALIB_XYZ", "x")
    monkeypatch.setenv("RECALIB_API_KEY", "x")  # the client's
    result = cli("doctor", "--database-url", url)
    assert result.out.startswith(
        "warning  settings: RECALIB_BLOBS is not a setting: did you mean RECALIB_BLOB_URL?; "
        "RECALIB_DATABSE_URL is not a setting: did you mean RECALIB_DATABASE_URL?; "
        "RECALIB_XYZ is not a setting: see docs/settings.md; "
    )
    assert "hush" not in result.out
    odd = cli("doctor", "--database-url", "postgresql://u:a@b:hush-hush@127.0.0.1:1/x")
    assert odd.status == 2
    assert odd.err.startswith("error: database_url: found text that is not a URL")
    assert "hush" not in odd.out + odd.err
