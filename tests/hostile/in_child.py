"""Read hostile files in the reader process of the server, which may crash."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from recalib.files import open_data
from recalib.replay.log import Log
from service.reader_process import ReaderProcess

__all__ = ["call_in_child", "read_chunks", "read_log"]

_SECONDS = 60.0
#: The child imports the functions of this module, and it searches no working folder.
_ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2])}
_reader = ReaderProcess()
atexit.register(_reader.close)


def call_in_child(read: Callable[..., None], content: bytes, **arguments: Any) -> None:
    """Call `read(path, **arguments)` in the child; raise what it raises."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        path = Path(folder, "file.parquet")
        path.write_bytes(content)
        with mock.patch.dict(os.environ, _ENVIRONMENT):
            _reader.call(read, seconds=_SECONDS, path=str(path), **arguments)


def read_chunks(path: str, format: str) -> None:
    """Read a data file like an upload."""
    with open_data(path, format=format) as file:
        for _ in file.chunks():
            pass


def read_log(path: str) -> None:
    """Read a log of predictions like `recalib replay`."""
    with Log(Path(path)) as log:
        log.survey()
