"""Styles and scripts of the pages, which browsers keep until they change."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fastapi import Response

from recalib.errors import NotFoundError

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable"}


@cache
def _contents() -> dict[str, tuple[bytes, str]]:
    """Return bytes and media type of each file, by a name that changes with its content."""
    files = [path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES]
    return {
        f"{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}-{path.name}": (
            path.read_bytes(),
            _TYPES[path.suffix],
        )
        for path in files
    }


@cache
def static_name(file: str) -> str:
    """Return the name under which a file is served."""
    return next(name for name in _contents() if name.partition("-")[2] == file)


def static_file(name: str) -> Response:
    """Return the file of a name; `NotFoundError` if there is none."""
    if name not in _contents():
        raise NotFoundError("file", name[:80])
    content, media_type = _contents()[name]
    return Response(content, media_type=media_type, headers=_HEADERS)
