"""Make the secrets of docker-compose.yml: `python make_secrets.py FOLDER`; nothing is made twice.

Each program gets a folder of its own, a volume that nobody else mounts: postgres, s3, recalib,
prometheus and grafana. Files can be read by whoever gets that far, since the programs in the
images run under numbers of their own; on the host, only root gets into Docker's volumes.
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
#: As docker-compose.yml calls the service.
_DATABASE_HOST = "postgres"


def main(root: Path) -> None:
    """Write what is missing below `root`, and what follows from what is there."""
    password = _kept(root / "postgres" / "password", secrets.token_urlsafe)
    _kept(root / "grafana" / "admin-password", secrets.token_urlsafe)
    _kept(root / "prometheus" / "recalib-key", new_secret)
    credentials = _kept(root / "recalib" / "s3-credentials", _credentials)
    url = f"postgresql://{_USER}:{password}@{_DATABASE_HOST}/{_DATABASE}"
    _write(root / "recalib" / "database-url", url)
    _write(root / "s3" / "config.json", _store(credentials))


def _credentials() -> str:
    """Return keys for S3 as its clients read them."""
    access, secret = secrets.token_hex(10).upper(), secrets.token_urlsafe()
    return f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}"


def _store(credentials: str) -> str:
    """Return who may use the object store, as SeaweedFS reads it: those keys, and nobody else."""
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(credentials)
    pair = {
        "accessKey": read["default"]["aws_access_key_id"],
        "secretKey": read["default"]["aws_secret_access_key"],
    }
    identity = {"name": "recalib", "credentials": [pair], "actions": ["Admin"]}
    return json.dumps({"identities": [identity]}, indent=2)


def _kept(path: Path, make: Callable[[], str]) -> str:
    """Return what the file holds, made first where there is none."""
    if not path.exists():
        _write(path, make())
    return path.read_text().strip()


def _write(path: Path, content: str) -> None:
    """Write the file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(f"{content}\n")
    new.chmod(0o444)
    os.replace(new, path)  # noqa: PTH105


if __name__ == "__main__":
    main(Path(sys.argv[1]))
