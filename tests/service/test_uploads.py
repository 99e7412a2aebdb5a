"""The reader process: uploads are read in a child that may crash, hang or run out of memory."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from recalib.errors import InputError, TooLargeError, UnavailableError
from recalib.files.base import translate_errors
from service.datasets.survey import from_fields, survey, survey_files, survey_url
from service.reader_process import ReaderProcess, _answer
from tests.files.examples import WRITERS, Writer, example, write_npz, write_parquet_columns

LOGITS, LABELS = example()
_SECONDS = 60.0


@pytest.fixture(scope="module")
def reader() -> Iterator[ReaderProcess]:
    """A reader process for the tests of this module."""
    reader = ReaderProcess()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECALIB_DATABASE_URL", "postgresql://user:secret@host/db")
        yield reader
    reader.close()


def _upload(reader: ReaderProcess, path: Path, content: bytes, **arguments: Any) -> Any:
    path.write_bytes(content)
    options = {"format": "npz", "input": "logits", "classes": 4, "seconds": _SECONDS, **arguments}
    return reader.call(survey_url, url=path.as_uri(), **options)


#: Arguments of `wait` that keep the child busy for a minute, like an endless file.
_ENDLESS: dict[str, Any] = {"object_list": [], "timeout": 60.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write"),
    [pytest.param(*WRITERS[key], id=key) for key in WRITERS if key != "npy"],
)
def test_child_returns_what_the_survey_returns(
    reader: ReaderProcess, tmp_path: Path, name: str, write: Writer
) -> None:
    content = write(LOGITS, LABELS)
    fields = _upload(reader, tmp_path / "file", content, format=name)
    summary = survey(io.BytesIO(content), name, "logits", 4)
    assert from_fields(fields) == summary


def test_errors_keep_their_class_and_fields(reader: ReaderProcess, tmp_path: Path) -> None:
    logits = LOGITS.copy()
    logits[3, 1] = np.nan
    with pytest.raises(InputError) as excinfo:
        _upload(reader, tmp_path / "file", write_npz(logits, LABELS))
    assert (excinfo.value.field, excinfo.value.found) == ("logits[3][1]", "NaN")
    with pytest.raises(UnavailableError, match="No such file"):
        reader.call(
            survey_url, seconds=_SECONDS, url=(tmp_path / "missing").as_uri(), format="npz",
            input="logits", classes=4,
        )  # fmt: skip


def test_one_child_reads_all_uploads(reader: ReaderProcess, tmp_path: Path) -> None:
    _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))
    first = reader.pid
    _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))
    assert first is not None
    assert reader.pid == first != os.getpid()


@pytest.mark.slow
def test_killed_child_is_an_error_and_is_replaced(
    reader: ReaderProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The system may end the child in the middle of a valid file, which may be sent again."""
    _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))
    killed = reader.pid
    assert killed is not None
    killer = threading.Timer(0.2, os.kill, (killed, signal.SIGKILL))
    killer.start()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(UnavailableError, match=r"system ended the reader .* \(SIGKILL\); try again"),
    ):
        reader.call(wait, seconds=_SECONDS, **_ENDLESS)
    assert [record.action for record in caplog.records] == ["reader_unavailable"]  # type: ignore[attr-defined]
    assert _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))["rows"] == 40
    assert reader.pid != killed


@pytest.mark.slow
def test_child_that_is_killed_between_uploads_is_replaced(
    reader: ReaderProcess, tmp_path: Path
) -> None:
    _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))
    assert reader.pid is not None
    child = psutil.Process(reader.pid)
    child.kill()
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))["rows"] == 40


@pytest.mark.slow
def test_deadline_ends_the_child(reader: ReaderProcess, tmp_path: Path) -> None:
    _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))
    slow = reader.pid
    with pytest.raises(InputError, match=r"takes more than 0\.2 s to read"):
        reader.call(wait, seconds=0.2, **_ENDLESS)
    assert slow is not None
    assert not psutil.pid_exists(slow)
    assert _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))["rows"] == 40


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no limit on address space")
def test_memory_limit_rejects_the_file(tmp_path: Path) -> None:
    """A page that claims 2 GB. This process does not grow, and a new child reads on."""
    content = write_parquet_columns(LOGITS[:5], LABELS[:5])
    size = b"\x15\xfe\xff\xff\xff\x0f"  # of the first page, packed and unpacked
    reader = ReaderProcess(max_bytes=1 << 30)
    before = psutil.Process().memory_info().rss
    with pytest.raises(InputError, match="needs more than 1024 MiB to read"):
        _upload(reader, tmp_path / "f", content[:6] + size + size + content[10:], format="parquet")
    assert psutil.Process().memory_info().rss - before < 32 << 20
    assert _upload(reader, tmp_path / "f", content, format="parquet")["rows"] == 5
    reader.close()


def test_memory_error_is_found_below_an_error_that_names_its_file(tmp_path: Path) -> None:
    """The child, whose allocator may keep the memory, is replaced then."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.datasets.survey.open_data", _need_too_much)
        patch.setattr("service.reader_process._limit_processor_time", lambda seconds: None)
        arguments = {
            "uri": path.as_uri(), "root": tmp_path.as_uri(), "files": [(path.as_uri(), 0, "")],
            "input": "logits", "classes": 4, "task": "multiclass", "class_names": None,
                "read_rows": True,
        }  # fmt: skip
        with pytest.raises(TooLargeError, match=r"a\.parquet: data"):
            survey_files(**arguments)  # type: ignore[arg-type]
        answer = _answer(survey_files, {"seconds": _SECONDS, "arguments": arguments})
    assert answer == {"kind": "MemoryError"}


def _need_too_much(*_: Any, **__: Any) -> None:
    with translate_errors("parquet"):
        raise MemoryError


@pytest.mark.slow
def test_child_that_crashes_is_the_fault_of_its_file(
    reader: ReaderProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match=r"crashes its reader \(SIGABRT\)"):
        reader.call(os.abort, seconds=_SECONDS)
    assert [record.action for record in caplog.records] == ["upload_reader_failed"]  # type: ignore[attr-defined]
    assert _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))["rows"] == 40


def test_settings_are_not_in_the_environment_of_the_child(
    reader: ReaderProcess, tmp_path: Path
) -> None:
    """Settings contain passwords."""
    _upload(reader, tmp_path / "file", write_npz(LOGITS, LABELS))
    assert reader.pid is not None
    environment = psutil.Process(reader.pid).environ()
    assert "RECALIB_DATABASE_URL" not in environment
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
