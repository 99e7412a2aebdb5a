"""Uploads where the folder of the blobs is full or read-only, and uploads that break off."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx2
import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.programs import Programs, Server, half_an_upload, until
from tests.faults.disks import fill, small_disk
from tests.files.bad_files import BAD_OFFSETS, tensors
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz
from tests.service.stubs import Rpc, refused

pytestmark = pytest.mark.slow

_MIB = 2**20
_SAFETENSORS = {"Content-Type": "application/x-safetensors"}
_PATH = "/v1/models/digits/datasets"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("blobs"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def folder(programs: Programs) -> Iterator[Path]:
    """The folder of the blobs: a disk of 8 MB for itself."""
    programs.home.mkdir()
    with small_disk(programs.home / "blobs", 8) as folder:
        yield folder
        programs.clean_up()


@pytest.fixture(scope="module")
def server(programs: Programs, folder: Path) -> Iterator[Server]:
    with programs.serve("--job-workers", 0) as server:
        server.model()
        yield server


def test_read_only_folder(server: Server, folder: Path) -> None:
    """An upload gets 503 and leaves nothing; afterwards uploads succeed without a restart."""
    before = _state(server, folder)
    _remount(folder, "ro")
    try:
        answer = _put(server, "read-only", _body(1))
        assert answer.status_code == 503
        assert "Read-only file system" in answer.json()["detail"]
        assert answer.headers["retry-after"]
        assert server.ask("GET", "/readyz")["ready"] is True
    finally:
        _remount(folder, "rw")
    assert _state(server, folder) == before
    assert _put(server, "read-only", _body(1)).status_code == 201
    assert "Traceback" not in server.log()


def test_large_upload_to_a_full_disk_reads_503(server: Server, folder: Path) -> None:
    """A client that sends all 60 MiB before it reads sees the response, and not a reset."""
    before = _state(server, folder)
    filler = fill(folder)
    for _ in range(3):
        status, text = _send_all(server, os.urandom(60 * _MIB))
        assert (status, "no space left" in text) == (503, True), text
    filler.unlink()
    assert _state(server, folder) == before
    assert _put(server, "later", _body(2)).status_code == 201


def test_full_disk_over_grpc_is_unavailable(server: Server, folder: Path) -> None:
    before = _state(server, folder)
    filler = fill(folder)
    header = pb.UploadHeader(
        model="digits", name="full", content_type=NPZ["Content-Type"], input=pb.INPUT_LOGITS
    )
    parts = [pb.UploadDatasetRequest(header=header), pb.UploadDatasetRequest(chunk=_body(3))]
    with Rpc(server.grpc_url) as rpc:
        upload = rpc.datasets.upload_dataset
        error = refused(grpc.StatusCode.UNAVAILABLE, upload, iter(parts))
        assert "no space left" in error.details()
        filler.unlink()
        assert _state(server, folder) == before
        assert upload(iter(parts)).created


def test_refused_uploads_leave_nothing(server: Server, folder: Path) -> None:
    """Other data under a name that exists, offsets that overlap, and half of a file."""
    assert _put(server, "taken", _body(4)).status_code == 201
    before = _state(server, folder)
    assert _put(server, "taken", _body(5)).status_code == 409
    for content, _ in BAD_OFFSETS.values():
        answer = _put(server, "offsets", content, _SAFETENSORS)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == "data"
    body = npz(*draw(60_000, 4, 2.0))
    for _ in range(20):
        half_an_upload(server, body).close()
    until(lambda: _state(server, folder) == before, "broken uploads to be removed")
    assert _put(server, "offsets", tensors(64), _SAFETENSORS).status_code == 201
    assert "Traceback" not in server.log()


def _body(seed: int) -> bytes:
    return npz(*draw(60, 4, 2.0, seed=seed))


def _put(
    server: Server, name: str, content: bytes, headers: dict[str, str] = NPZ
) -> httpx2.Response:
    return server.client.put(f"{_PATH}/{name}", content=content, headers=headers)


def _send_all(server: Server, body: bytes) -> tuple[int, str]:
    """Return status and text of an upload whose client reads only after it has sent all."""
    address = server.url.removeprefix("http://")
    client = http.client.HTTPConnection(address, timeout=60)
    client.request("PUT", f"{_PATH}/full", body, NPZ)
    response = client.getresponse()
    text = response.read().decode()
    client.close()
    return response.status, text


def _state(server: Server, folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of all data sets, and those of all files in the folder."""
    items = server.ask("GET", _PATH)["items"]
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return [item["name"] for item in items], sorted(files)


def _remount(folder: Path, mode: str) -> None:
    subprocess.run([shutil.which("mount") or "mount", "-o", f"remount,{mode}", folder], check=True)
