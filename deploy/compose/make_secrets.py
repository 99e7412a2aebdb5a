"""Create missing secrets of docker-compose.yml: `python make_secrets.py FOLDER GROUP`.

Each program has a separate folder, a volume that only it mounts: postgres, s3, recalib, prometheus,
grafana and backup. The files are world-readable inside the volumes, because the programs of the
images run under different user numbers; PostgreSQL requires that only its group, GROUP, reads its
private key. On the host, only root can open Docker's volumes.
"""

from __future__ import annotations

import configparser
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from recalib.core.access import new_secret

_USER = _DATABASE = "recalib"
#: Names of the services in docker-compose.yml.
_DATABASE_HOST = "postgres"
_STORE_HOST = "s3"
#: Where the Recalib programs mount their folder.
_AUTHORITY_FILE = "/secrets/postgres-ca.crt"
_CERTIFICATE_DAYS = 3650


def main(root: Path, postgres_group: int) -> None:
    """Write the missing secrets below `root`, and the files that are derived from secrets."""
    password = _read_or_create(root / "postgres" / "password", secrets.token_urlsafe)
    _read_or_create(root / "grafana" / "admin-password", secrets.token_urlsafe)
    _read_or_create(root / "prometheus" / "recalib-key", new_secret)
    _read_or_create(root / "backup" / "key", _backup_key)
    credentials = _read_or_create(root / "recalib" / "s3-credentials", _credentials)
    postgres, s3 = root / "postgres", root / "s3"
    if not (postgres / "server.key").exists():
        authority, certificate, key = _certificates(_DATABASE_HOST)
        _write(root / "recalib" / "postgres-ca.crt", authority)
        _write(postgres / "server.crt", certificate)
        _write(postgres / "server.key", key, mode=0o440, group=postgres_group)
    if not (s3 / "grpc.key").exists():
        authority, certificate, key = _certificates(_STORE_HOST)
        _write(s3 / "grpc-ca.crt", authority)
        _write(s3 / "grpc.crt", certificate)
        _write(s3 / "grpc.key", key)
    query = f"sslmode=verify-full&sslrootcert={_AUTHORITY_FILE}"
    url = f"postgresql://{_USER}:{password}@{_DATABASE_HOST}/{_DATABASE}?{query}"
    _write(root / "recalib" / "database-url", url)
    _write(s3 / "config.json", _store(credentials))


def _backup_key() -> str:
    """Return a new age identity; the program also prints the public key, which stays secret."""
    command = ["age-keygen"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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


def _certificates(host: str) -> tuple[str, str, str]:
    """Return the certificate of a new authority, and certificate and key of `host`, in PEM.

    The key of the authority is not stored: it signs this certificate and no other.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Recalib's authority for {host}")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)

    def sign_certificate(
        name: x509.Name, public: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> str:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=_CERTIFICATE_DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                critical=False,
            )
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        certificate = builder.sign(authority_key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    authority = sign_certificate(
        issuer,
        authority_key.public_key(),
        x509.BasicConstraints(ca=True, path_length=0),
        _key_usage(signs_certificates=True),
    )
    certificate = sign_certificate(
        subject,
        key.public_key(),
        x509.BasicConstraints(ca=False, path_length=None),
        _key_usage(signs_certificates=False),
        x509.SubjectAlternativeName([x509.DNSName(host)]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return authority, certificate, private.decode()


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage of an authority, or of a server."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_or_create(path: Path, create: Callable[[], str]) -> str:
    """Return the content of the file; create it first if it does not exist."""
    if not path.exists():
        _write(path, create())
    return path.read_text().strip()


def _write(path: Path, content: str, *, mode: int = 0o444, group: int = -1) -> None:
    """Write the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    # Without capabilities, an owner may still choose a group that it belongs to.
    os.chown(new, -1, group)
    new.write_text(f"{content.rstrip()}\n")
    new.chmod(mode)
    os.replace(new, path)  # noqa: PTH105


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
