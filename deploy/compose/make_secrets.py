"""Create missing secrets of docker-compose.yml: `python make_secrets.py FOLDER`.

Each program has a separate folder, a volume that only it mounts: postgres, s3, recalib, prometheus
and grafana. The files are world-readable inside the volumes, because the programs of the images run
under different user numbers. On the host, only root can open Docker's volumes.
"""

from __future__ import annotations

import configparser
import json
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from recalib.access import new_secret

_USER = _DATABASE = "recalib"
#: The name of the service in docker-compose.yml.
_DATABASE_HOST = "postgres"


def main(root: Path) -> None:
    """Write the missing secrets below `root`, and the files that are derived from secrets."""
    password = _read_or_create(root / "postgres" / "password", secrets.token_urlsafe)
    _read_or_create(root / "grafana" / "admin-password", secrets.token_urlsafe)
    _read_or_create(root / "prometheus" / "recalib-key", new_secret)
    credentials = _read_or_create(root / "recalib" / "s3-credentials", _credentials)
    url = f"postgresql://{_USER}:{password}@{_DATABASE_HOST}/{_DATABASE}"
    _write(root / "recalib" / "database-url", url)
    _write(root / "s3" / "config.json", _store(credentials))


def _credentials() -> str:
    """Return new S3 credentials in the format of AWS clients."""
    access, secret = secrets.token_hex(10).upper(), secrets.token_urlsafe()
    return f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}"


def _store(credentials: str) -> str:
    """Return the SeaweedFS configuration that accepts these credentials only."""
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(credentials)
    pair = {
        "accessKey": config["default"]["aws_access_key_id"],
        "secretKey": config["default"]["aws_secret_access_key"],
    }
    identity = {"name": "recalib", "credentials": [pair], "actions": ["Admin"]}
    return json.dumps({"identities": [identity]}, indent=2)


def _read_or_create(path: Path, create: Callable[[], str]) -> str:
    """Return the content of the file; create it first if it does not exist."""
    if not path.exists():
        _write(path, create())
    return path.read_text().strip()


def _write(path: Path, content: str) -> None:
    """Write the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(f"{content}\n")
    new.chmod(0o444)
    os.replace(new, path)  # noqa: PTH105


if __name__ == "__main__":
    main(Path(sys.argv[1]))
