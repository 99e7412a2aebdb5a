"""TLS for REST and gRPC at a real server, with generated certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc
import httpx2
import pytest
import trustme
from google.protobuf.message_factory import GetMessageClass

from recalib.client import Client
from recalib.settings import Settings
from service.addresses import check_tls
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.end_to_end.programs import Programs
from tests.service.stubs import SERVICES, Stub

__all__ = ["cli"]


class Certificates:
    """A certificate authority, and a certificate that it signs for this machine."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1")
        self.root, self.chain, self.key = (
            folder / name for name in ("root.pem", "chain.pem", "key.pem")
        )
        self.authority.cert_pem.write_to_path(self.root)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.chain, append=True)
        issued.private_key_pem.write_to_path(self.key)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.mark.slow
def test_rest_and_grpc_speak_tls(programs: Programs, certificates: Certificates) -> None:
    options = {"tls_certificate": certificates.chain, "tls_key": certificates.key}
    context = ssl.create_default_context(cafile=str(certificates.root))
    with programs.serve("--job-workers", 0, verify=context, **options) as server:
        assert server.url.startswith("https://")
        with Client(server.url, transport=httpx2.HTTPTransport(verify=context)) as client:
            client.create_model("digits", 3)
            answer = server.client.post(
                "/v1/models/digits/calibrate", json={"logits": [[0.0, 1.0, 2.0]]}
            )
            assert answer.json()["calibrator"]["uncalibrated"]
        with pytest.raises(httpx2.TransportError):
            httpx2.get(server.url.replace("https", "http") + "/livez", timeout=30)
        with pytest.raises(httpx2.TransportError):
            httpx2.get(server.url + "/livez", timeout=30)  # signed by an unknown authority
        credentials = grpc.ssl_channel_credentials(certificates.root.read_bytes())
        with grpc.secure_channel(server.grpc_url, credentials) as channel:
            stub = Stub(channel, SERVICES["Models"])
            method = SERVICES["Models"].methods_by_name["GetModel"]
            request = GetMessageClass(method.input_type)(model="digits")
            assert stub.get_model(request).classes == 3


def test_mismatched_certificate_and_key_are_refused(
    cli: Cli, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for chain, key, named in (
        (certificates.chain, "", "RECALIB_TLS_KEY"),
        ("", certificates.key, "RECALIB_TLS_CERTIFICATE"),
        (certificates.chain, tmp_path / "none.pem", "RECALIB_TLS_KEY"),
        (certificates.chain, Certificates(other).key, "RECALIB_TLS_CERTIFICATE"),
        (certificates.key, certificates.key, "RECALIB_TLS_CERTIFICATE"),
    ):
        monkeypatch.setenv("RECALIB_TLS_CERTIFICATE", str(chain))
        monkeypatch.setenv("RECALIB_TLS_KEY", str(key))
        done = cli("serve", "--port", "0", "--home", str(tmp_path / "home"))
        assert done.status == 2
        assert done.err.startswith(f"error: {named}: ")
        assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "home").exists()


def test_public_address_with_tls_still_needs_a_proxy(certificates: Certificates) -> None:
    files = {"tls_certificate": str(certificates.chain), "tls_key": str(certificates.key)}
    public = Settings(host="0.0.0.0", **files)  # noqa: S104
    assert "nothing limits connections" in check_tls(public)
    assert check_tls(public.model_copy(update={"trusted_proxies": "10.0.0.1"})) == ""
    assert check_tls(public.model_copy(update={"host": "127.0.0.1"})) == ""
