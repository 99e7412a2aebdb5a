"""Settings: units, validation and sources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from recalib.core.field_comments import field_comments
from recalib.errors import InputError
from recalib.registry import job_kinds
from recalib.settings import Settings

_ROOT = Path(__file__).resolve().parents[2]


def test_readme_names_settings_only() -> None:
    """The README links the page."""
    known = {f"RECALIB_{name.upper()}" for name in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    readme = (_ROOT / "README.md").read_text()
    assert "(docs/settings.md)" in readme
    assert set(re.findall(r"RECALIB_[A-Z_]+", readme)) <= known


@pytest.mark.parametrize("name", Settings.model_fields)
def test_numeric_settings_state_their_unit(name: str) -> None:
    """The name ends in the unit where there is one, and the description repeats it."""
    unit = re.search(r"_(seconds|bytes)$", name)
    if unit:
        assert field_comments(Settings)[name].endswith(f", in {unit[1]}.")


def test_every_long_kind_of_job_has_a_limit() -> None:
    """Monitoring repeats itself, and has none. A word of another form is refused at the start."""
    kinds = {value for name, value in vars(job_kinds).items() if name.isupper()}
    limits = Settings().seconds_of_jobs
    assert limits.keys() == kinds - {job_kinds.MONITOR}
    every = " ".join(f"{kind}=60" for kind in sorted(kinds))
    assert Settings(job_seconds=every).seconds_of_jobs == dict.fromkeys(kinds, 60.0)
    assert Settings(job_seconds=" ").seconds_of_jobs == {}
    for wrong in ("fit", "fit=", "fit=1h", "fits=60", "fit=60train=9", "fit=-1"):
        with pytest.raises(ValidationError):
            Settings(job_seconds=wrong)


def recalib(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `recalib` with only these RECALIB_ variables."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("RECALIB_")
    }
    return subprocess.run(
        [sys.executable, "-m", "recalib", *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "variables", "line"),
    [
        (
            ["serve"],
            {"RECALIB_PORT": "eighty"},
            "error: RECALIB_PORT: found 'eighty'; accepted: a valid integer",
        ),
        pytest.param(
            ["worker"],
            {"RECALIB_LEASE_SECONDS": "-3"},
            "error: RECALIB_LEASE_SECONDS: found '-3'; accepted: greater than 0",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["serve", "--port", "65536"],
            {"RECALIB_PORT": "8000"},
            "error: --port: found 65536; accepted: less than or equal to 65535",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_invalid_setting_is_one_line(
    command: list[str], variables: dict[str, str], line: str
) -> None:
    """Exit status 2, and a line on standard error that names variable or option."""
    result = recalib(*command, **variables)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1


BAD = [
    ("PORT", "-1"),
    ("PORT", "65536"),
    ("PORT", "8000.5"),
    ("GRPC_PORT", "-2"),
    ("GRPC_PORT", "65536"),
    ("WORKERS", "0"),
    ("WORKERS", "257"),
    ("JOB_WORKERS", "-1"),
    ("JOB_WORKERS", "65"),
    ("MAX_UPLOAD_BYTES", "0"),
    ("MAX_BODY_BYTES", "64 MB"),
    ("MAX_ROWS", "0"),
    ("CACHE_BYTES", "0"),
    *(
        (name, bad)
        for name in ("LEASE", "POLL", "REFRESH", "LOAD")
        for bad in ("0", "inf", "nan", "1s")
    ),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_values_out_of_range_are_rejected(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Infinite waits are rejected too."""
    name = f"{name}_SECONDS" if name in ("LEASE", "POLL", "REFRESH", "LOAD") else name
    monkeypatch.setenv(f"RECALIB_{name}", value)
    with pytest.raises(ValidationError) as excinfo:
        Settings()
    assert [error["loc"] for error in excinfo.value.errors()] == [(name.lower(),)]


def test_arguments_override_environment_and_environment_overrides_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variable names are case-insensitive."""
    monkeypatch.setenv("RECALIB_PORT", "8001")
    monkeypatch.setenv("recalib_max_rows", "7")
    assert (Settings().port, Settings().max_rows) == (8001, 7)
    assert Settings(port=8002).port == 8002


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an empty home would mean the working directory."""
    monkeypatch.delenv("RECALIB_ALLOWED_HOSTS")  # set for all tests
    before = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"RECALIB_{name.upper()}", "")
    assert Settings() == before


def test_setting_can_be_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The trailing newline is removed; the plain variable takes precedence."""
    url = "postgresql://recalib:secret@db/recalib"
    for name, content in (("url", f"{url}\n"), ("port", "8123"), ("empty", "\n")):
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("RECALIB_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("recalib_port_file", str(tmp_path / "port"))
    monkeypatch.setenv("RECALIB_BLOB_URL_FILE", str(tmp_path / "empty"))
    monkeypatch.setenv("RECALIB_HOST_FILE", "")
    settings = Settings()
    assert (settings.database_url, settings.port, settings.blob_url) == (url, 8123, "")
    assert settings.host == "127.0.0.1"
    monkeypatch.setenv("RECALIB_PORT", "8001")
    assert Settings().port == 8001
    assert Settings(port=8002).port == 8002


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"\xff", "not text in UTF-8"), (b"x" * 65_537, "over 65536 bytes")],
)
def test_unreadable_setting_file_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, message: str
) -> None:
    """The error names the variable and contains none of the file's content."""
    path = tmp_path / "url"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("RECALIB_DATABASE_URL_FILE", str(path))
    with pytest.raises(InputError, match="RECALIB_DATABASE_URL_FILE") as excinfo:
        Settings()
    assert message in str(excinfo.value)
    assert len(str(excinfo.value)) < 300


def test_unknown_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs may use the same prefix."""
    monkeypatch.setenv("RECALIB_DATABASE", "x")
    assert not hasattr(Settings(), "database")


def test_default_urls_are_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A relative home is resolved against the working directory at start."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=Path("state"))
    assert settings.resolved_database_url == f"sqlite:///{tmp_path}/state/recalib.db"
    assert settings.resolved_blob_url == f"file://{tmp_path}/state/blobs"
    explicit = Settings(database_url="postgresql://db/recalib", blob_url="s3://bucket/x")
    assert explicit.resolved_database_url == "postgresql://db/recalib"
    assert explicit.resolved_blob_url == "s3://bucket/x"
