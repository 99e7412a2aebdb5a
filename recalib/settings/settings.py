"""Every setting of Recalib, in one place.

Each is an environment variable ``RECALIB_<NAME>``, where an empty one is as good as none, or the
content of the file that ``RECALIB_<NAME>_FILE`` names, or a line of the TOML file that
``RECALIB_CONFIG`` names; the first of these that has it counts, and the command line before them.
Relative paths are taken from where the command runs. A setting that `docs/settings.md` does not
list, or lists otherwise, fails a test.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from recalib.settings.secret_files import SettingsFromFiles
from recalib.settings.toml_file import SettingsFromToml

__all__ = ["Settings"]

_MIB = 2**20


class Settings(BaseSettings):
    """What `recalib serve` and `recalib worker` run with."""

    model_config = SettingsConfigDict(env_prefix="RECALIB_", env_ignore_empty=True, extra="ignore")

    config: str = Field(
        "", description="TOML file of settings, by their names in small letters; empty for none."
    )
    require_keys: bool = Field(
        False,
        description="Whether every request needs an API key; always so at an address that other "
        "machines reach.",
    )
    insecure: bool = Field(
        False, description="Serve at such an address without API keys all the same."
    )
    oidc_issuer: str = Field(
        "",
        description="Issuer whose tokens are taken as API keys are (OpenID Connect), as `iss` has "
        "it; empty for none.",
    )
    oidc_audience: str = Field(
        "", description="What tokens that are for this server have as `aud`; an issuer needs it."
    )
    oidc_jwks_url: str = Field(
        "",
        description="Where the issuer's keys are; empty means where its own description says.",
    )
    oidc_algorithms: str = Field(
        "RS256 ES256",
        description="Algorithms that tokens may be signed with, some of RS256, RS384, RS512, "
        "PS256, PS384, PS512, ES256, ES384, ES512 and EdDSA.",
    )
    oidc_scope_claim: str = Field(
        "scope",
        min_length=1,
        description="Claim that says what a token is for, words or a list; `outer.inner` for one "
        "within another.",
    )
    oidc_scopes: str = Field(
        "metrics=recalib:metrics predict=recalib:predict label=recalib:label fit=recalib:fit "
        "admin=recalib:admin",
        description="What the words of that claim mean here: SCOPE=WORD, as many as there are.",
    )
    oidc_models_claim: str = Field(
        "",
        description="Claim that names the models that a token is for, `*` for all; empty means "
        "that every token is for all.",
    )
    oidc_leeway_seconds: float = Field(
        30.0, ge=0, le=300, description="How far the issuer's clock may be from ours, in seconds."
    )
    oidc_keys_seconds: float = Field(
        86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="How long the issuer's keys are good while it cannot be reached, in seconds.",
    )
    key_requests_per_second: float = Field(
        0.0,
        ge=0,
        le=1e12,
        description="Requests a second of each API key or token, where the key has no limit of its "
        "own; 0 for no limit, as with the next three.",
    )
    key_rows_per_second: float = Field(
        0.0, ge=0, le=1e12, description="Rows a second that each may have calibrated."
    )
    key_concurrency: int = Field(
        0, ge=0, le=1_000_000, description="Requests that each may have in work at once."
    )
    key_body_bytes: int = Field(
        0,
        ge=0,
        le=2**50,
        description="Largest body of each, where it is less than others may send, in bytes.",
    )
    audit_seconds: float = Field(
        365 * 86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="How long the audit trail is kept, in seconds.",
    )
    home: Path = Field(
        Path.home() / ".recalib",
        description="Folder of the SQLite database and the blobs, where no URL says otherwise.",
    )
    database_url: str = Field(
        "",
        description="SQLAlchemy URL of the registry; empty means SQLite at HOME/recalib.db. "
        "PostgreSQL: postgresql://user:password@host/name.",
    )
    blob_url: str = Field(
        "",
        description="fsspec URL of the folder for datasets (file:///..., s3://bucket/prefix); "
        "empty means HOME/blobs.",
    )
    training_data: str = Field(
        "",
        description="Folder of the data that training runs may name; empty means "
        "HOME/training-data.",
    )
    max_weights: int = Field(
        100_000_000,
        gt=0,
        description="Most weights of a network that a training run may name.",
    )
    log_format: str = Field(
        "text",
        pattern="^(text|json)$",
        description="Form of the log on standard error: text for people, json for machines.",
    )
    log_level: str = Field(
        "info",
        pattern="^(debug|info|warning|error)$",
        description="Least severity that is logged: debug, info, warning or error.",
    )
    otlp_endpoint: str = Field(
        "",
        description="URL of an OpenTelemetry collector that takes OTLP over HTTP and is told of "
        "every request and job, such as http://127.0.0.1:4318; empty for none.",
    )
    access_log: bool = Field(False, description="Whether every request gets a line in the log.")
    host: str = Field("127.0.0.1", description="Address that the server listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port of the REST server.")
    grpc_port: int = Field(
        8001, ge=-1, le=65535, description="Port of the gRPC server; -1 for none."
    )
    tls_certificate: str = Field(
        "", description="File of the server's certificate chain, PEM; REST and gRPC use TLS then."
    )
    tls_key: str = Field("", description="File of the certificate's private key, PEM.")
    workers: int = Field(1, ge=1, le=256, description="Server processes.")
    job_workers: int = Field(
        1, ge=0, le=64, description="Worker processes that `recalib serve` starts beside itself."
    )
    max_upload_bytes: int = Field(
        16 * 1024 * _MIB, gt=0, description="Largest dataset that may be uploaded, in bytes."
    )
    max_body_bytes: int = Field(
        64 * _MIB, gt=0, description="Largest body of any other request, in bytes."
    )
    max_rows: int = Field(
        100_000, gt=0, description="Most rows that one calibrate request may carry."
    )
    prediction_ids: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of predictions that get an id, where the request does not say.",
    )
    max_labels: int = Field(10_000, gt=0, description="Most labels that one request may carry.")
    label_lifetime_seconds: float = Field(
        30 * 86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="How long after a prediction its label is taken, in seconds.",
    )
    flush_seconds: float = Field(
        5.0,
        gt=0,
        allow_inf_nan=False,
        description="How often a server process writes down how many predictions it has made, "
        "in seconds.",
    )
    bucket_seconds: int = Field(
        300,
        ge=1,
        le=3600,
        description="How finely predictions are counted by time, the same in all processes, "
        "in seconds.",
    )
    capture_seconds: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="How often a server process writes down logits that are to be kept, "
        "in seconds.",
    )
    monitor_seconds: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="How often a worker looks at what has matured, in seconds.",
    )
    lease_seconds: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a job stays a worker's without a heartbeat, in seconds.",
    )
    poll_seconds: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="How often an idle worker looks for a job, in seconds.",
    )
    cache_bytes: int = Field(
        1024 * _MIB,
        gt=0,
        description="Memory that loaded calibrators may take in each server process, in bytes.",
    )
    load_seconds: float = Field(
        5.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a request waits for a calibrator that is not loaded, in seconds.",
    )
    refresh_seconds: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="How often a server process looks for promotions made elsewhere, in seconds.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Say where settings come from, the first that has one first."""
        files = SettingsFromFiles(settings_cls), SettingsFromToml(settings_cls)
        return (init_settings, env_settings, *files)

    @property
    def resolved_database_url(self) -> str:
        """The registry's URL, the default filled in."""
        return self.database_url or f"sqlite:///{self.home.absolute() / 'recalib.db'}"

    @property
    def resolved_blob_url(self) -> str:
        """The blob folder's URL, the default filled in."""
        return self.blob_url or (self.home.absolute() / "blobs").as_uri()

    @property
    def resolved_training_data(self) -> Path:
        """The folder of training data, the default filled in."""
        return Path(self.training_data) if self.training_data else self.home / "training-data"
