"""Parts in object stores: one upload for each, which a killed program leaves invisible."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest

import recalib
import recalib.scale
from tests.fitting.conftest import draw

_ROOT = Path(__file__).resolve().parents[2]
_PARTS = 4
_PATIENCE_SECONDS = 120.0
_WRITE = re.compile(rb"^(PUT|POST|DELETE) (\S+) HTTP/1.1\r\n(.*?)\r\n\r\n", re.DOTALL)
#: Bytes of the upload that reach the store before the program is killed; a part has more.
_SENT_BYTES = 4096

pytestmark = pytest.mark.slow


class _Relay(socketserver.ThreadingTCPServer):
    """A server that notes the writes to a store, and cuts the upload to one path.

    Parameters
    ----------
    store: host and port.
    cut: the path whose upload is cut; none if empty.
    """

    daemon_threads = True

    def __init__(self, store: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.store = store
        self.cut = ""
        self.writes: list[str] = []
        #: A part of the upload has reached the store; the store has ended that connection.
        self.is_cut, self.has_ended = threading.Event(), threading.Event()


class _Connection(socketserver.BaseRequestHandler):
    server: _Relay

    def handle(self) -> None:
        relay, is_cut = self.server, False
        with socket.create_connection(relay.store) as store:
            answers = threading.Thread(target=_copy, args=(store, self.request))
            answers.start()
            with suppress(ConnectionError):
                while data := self.request.recv(_SENT_BYTES):
                    if is_cut:
                        relay.is_cut.set()
                        continue
                    if match := _WRITE.match(data):
                        path = urlsplit(match[2].decode()).path
                        copy = " copy" if b"x-amz-copy-source" in match[3].lower() else ""
                        relay.writes.append(f"{match[1].decode()} {path}{copy}")
                        is_cut = path == relay.cut
                    store.sendall(data)
            with suppress(OSError):
                store.shutdown(socket.SHUT_WR)
            answers.join()
        if is_cut:
            relay.has_ended.set()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def relay(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Relay]:
    address = urlsplit(os.environ["AWS_ENDPOINT_URL_S3"])
    assert address.hostname is not None
    assert address.port is not None
    with _Relay((address.hostname, address.port)) as relay:
        thread = threading.Thread(target=relay.serve_forever)
        thread.start()
        port = relay.server_address[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
        yield relay
        relay.shutdown()
        thread.join()


def test_killed_upload_is_invisible_and_each_part_is_one_upload(
    bucket: str, relay: _Relay, tmp_path: Path
) -> None:
    filesystem = fsspec.filesystem("s3", use_listings_cache=False)
    filesystem.mkdir(bucket)
    (tmp_path / "in").mkdir()
    logits, labels = draw(4000, 4, 3.0)
    for part in range(_PARTS):
        values: dict[str, Any] = {"logits": logits[part::_PARTS], "labels": labels[part::_PARTS]}
        np.savez(tmp_path / "in" / f"{part}.npz", **values)
    calibrator = recalib.fit(logits, labels)
    calibrator.save(tmp_path / "t.calib")
    names = [f"part-{part:05d}.parquet" for part in range(_PARTS)]
    relay.writes.clear()
    relay.cut = f"/recalib/out/{names[2]}"
    command = [sys.executable, "-m", "recalib", "apply", str(tmp_path / "t.calib")]
    process = subprocess.Popen(
        [*command, str(tmp_path / "in"), "--output", f"{bucket}/out"],
        cwd=_ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert relay.is_cut.wait(_PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert relay.has_ended.wait(_PATIENCE_SECONDS)
    relay.cut = ""
    visible = {path.rpartition("/")[2] for path in filesystem.find(f"{bucket}/out")}
    assert visible == {"_manifest.json", *names[:2]}
    applied = recalib.scale.apply(calibrator, tmp_path / "in", f"{bucket}/out")
    assert (applied.parts, applied.resumed) == (_PARTS, 2)
    manifest, *parts = (f"PUT /recalib/out/{name}" for name in ("_manifest.json", *names))
    assert relay.writes == [manifest, *parts[:3], *parts[2:], manifest]
    recalib.scale.apply(calibrator, tmp_path / "in", str(tmp_path / "out"))
    for name in names:
        with filesystem.open(f"{bucket}/out/{name}") as stream:
            assert pq.read_table(stream).equals(pq.read_table(tmp_path / "out" / name))
