"""A result file is written completely or not at all."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recalib.errors import InputError
from recalib.files import digest, read, write_npz

# A file size limit imitates a full disk: the kernel stops
# the write in the middle of the file.
_FULL_DISK = """
import resource, signal, sys
import numpy as np
from recalib.errors import InputError
from recalib.files import write_npz
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_npz(sys.argv[1], logits=np.zeros((100_000, 10)))
except InputError as error:
    print(error.found)
"""


def test_written_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    write_npz(path, logits=np.eye(3, dtype=np.float32), labels=[0, 1, 2])
    data = read(path)
    assert data.logits.dtype == np.float32
    np.testing.assert_array_equal(data.labels, [0, 1, 2])
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.npz"]


def test_full_disk_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    write_npz(path, logits=np.eye(3))
    before = digest(path)
    answer = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    assert "(File too large)" in answer.stdout
    assert digest(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.npz"]


def test_object_arrays_are_rejected_before_writing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Python objects"):
        write_npz(tmp_path / "result.npz", names=np.array([{}, None]))
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing/result.npz \(No such file"):
        write_npz(tmp_path / "missing" / "result.npz", logits=np.eye(3))


def test_digest_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 1_000_000)
    assert digest(path) == hashlib.sha256(b"abc" * 1_000_000).hexdigest()
