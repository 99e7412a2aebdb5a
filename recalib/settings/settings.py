"""Every setting of Recalib, in one class.

Sources, in order of precedence: the command line, the environment variable ``RECALIB_<NAME>``, the
file that ``RECALIB_<NAME>_FILE`` names, the TOML file that ``RECALIB_CONFIG`` names, the default.
An empty variable counts as unset. Relative paths start at the working directory. A test compares
`docs/settings.md` with this class.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from recalib.settings.secret_files import SettingsFromFiles
from recalib.settings.toml_file import SettingsFromToml

_MIB = 2**20


class Settings(BaseSettings):
    """Settings of `recalib serve` and `recalib worker`."""

    model_config = SettingsConfigDict(env_prefix="RECALIB_", env_ignore_empty=True, extra="ignore")

    config: str = Field(
        "", description="TOML file of settings, with lower-case names; empty for none."
    )
    require_keys: bool = Field(
        False,
        description="Whether every request needs an API key. Always true at an address that other"
        " machines reach.",
    )
    insecure: bool = Field(
        False, description="Serve without API keys at an address that other machines reach."
    )
    allowed_hosts: str = Field(
        "",
        description="Names besides loopback names that a server without keys accepts in `Host`, "
        "without ports, separated by spaces.",
    )
    cors_origins: str = Field(
        "",
        description="Origins of web pages that may call the server, such as "
        "https://app.example.com, separated by spaces; empty for none.",
    )
    public_docs: bool = Field(
        False,
        description="Whether the OpenAPI document, `/docs` and gRPC reflection need no API key "
        "where other requests do.",
    )
    oidc_issuer: str = Field(
        "",
        description="OpenID Connect issuer whose tokens are accepted like API keys, as in `iss`; "
        "empty for none.",
    )
    oidc_audience: str = Field(
        "", description="Required `aud` of tokens; mandatory with an issuer."
    )
    oidc_jwks_url: str = Field(
        "",
        description="URL of the issuer's keys; empty means the URL of its discovery document.",
    )
    oidc_algorithms: str = Field(
        "RS256 ES256",
        description="Accepted signature algorithms, some of RS256, RS384, RS512, PS256, PS384, "
        "PS512, ES256, ES384, ES512 and EdDSA.",
    )
    oidc_scope_claim: str = Field(
        "scope",
        min_length=1,
        description="Claim with the scopes of a token, a string of words or a list; `outer.inner`"
        " for a nested claim.",
    )
    oidc_scopes: str = Field(
        "metrics=recalib:metrics predict=recalib:predict label=recalib:label fit=recalib:fit "
        "admin=recalib:admin",
        description="Mapping of Recalib's scopes to words of that claim, SCOPE=WORD, separated by"
        " spaces.",
    )
    oidc_models_claim: str = Field(
        "",
        description="Claim with the models that a token is for, `*` for all; empty means that "
        "every token is for all models.",
    )
    oidc_leeway_seconds: float = Field(
        30.0,
        ge=0,
        le=300,
        description="Tolerated difference between the issuer's clock and the server's, in seconds.",
    )
    oidc_keys_seconds: float = Field(
        86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="How long the issuer's keys stay valid while the issuer is unreachable, in "
        "seconds.",
    )
    oidc_client_id: str = Field(
        "",
        description="Id of the console at the issuer, where people then sign in; empty: with API "
        "keys only.",
    )
    oidc_client_secret: str = Field("", description="Secret of that id; empty for a public client.")
    oidc_client_scopes: str = Field(
        "openid",
        description="Words that a sign-in asks the issuer for, `openid` among them, separated by "
        "spaces.",
    )
    oidc_session_seconds: float = Field(
        28_800.0,
        ge=60,
        le=43_200,
        description="How long a person whom the issuer has signed in stays signed in, in seconds.",
    )
    key_requests_per_second: float = Field(
        0.0,
        ge=0,
        le=1e12,
        description="Requests per second of each API key or token without its own limit; 0 for no"
        " limit, as in the next four settings.",
    )
    key_rows_per_second: float = Field(
        0.0, ge=0, le=1e12, description="Calibrated rows per second of each API key or token."
    )
    key_concurrency: int = Field(
        0, ge=0, le=1_000_000, description="Concurrent requests of each API key or token."
    )
    key_body_bytes: int = Field(
        0,
        ge=0,
        le=2**50,
        description="Largest body of each API key or token, if it is below the general limit, in "
        "bytes.",
    )
    key_queued_jobs: int = Field(
        1_000,
        ge=0,
        le=1_000_000,
        description="Jobs of each API key or token that wait for a worker.",
    )
    audit_seconds: float = Field(
        365 * 86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="Retention of the audit trail, in seconds.",
    )
    events_seconds: float = Field(
        30 * 86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="Retention of events, in seconds.",
    )
    public_url: str = Field(
        "",
        pattern=r"^(https?://[!-~]+)?$",
        description="URL at which people reach the server, for the commands of alerts and the "
        "links of the console; empty for none.",
    )
    docs_url: str = Field(
        "",
        pattern=r"^(https?://[!-~]+)?$",
        description="URL of this documentation, as `make docs` builds it, for links in the console"
        " and in the OpenAPI document; empty for none.",
    )
    runbook_url: str = Field(
        "docs/operations.md",
        pattern=r"^[!-~]+$",
        description="URL of docs/operations.md, for links in alerts.",
    )
    dashboard_url: str = Field(
        "",
        pattern=r"^(https?://[!-~]+)?$",
        description="URL of the Grafana dashboard of calibration, for links in alerts.",
    )
    webhook_targets: str = Field(
        "",
        description="Names, addresses and networks that webhooks may reach although they are not "
        "public, separated by spaces.",
    )
    webhook_attempts: int = Field(
        10,
        ge=1,
        le=100,
        description="Attempts to deliver an event to a webhook; ten take about 20 hours.",
    )
    max_event_streams: int = Field(
        100,
        gt=0,
        description="Maximum number of event streams over gRPC of each server process.",
    )
    deleted_seconds: float = Field(
        7 * 86_400.0,
        # Servers that have not seen the deletion yet still write counts and logits.
        ge=60,
        le=1e10,
        description="Time after which the content of deleted models, data sets, versions and "
        "training runs is erased, in seconds.",
    )
    home: Path = Field(
        Path.home() / ".recalib",
        description="Folder of the SQLite database and the blobs, unless a URL is set.",
    )
    database_url: str = Field(
        "",
        description="SQLAlchemy URL of the registry; empty means SQLite at HOME/recalib.db. "
        "PostgreSQL: postgresql://user:password@host/name.",
    )
    blob_url: str = Field(
        "",
        description="fsspec URL of the folder for blobs (file:///..., s3://bucket/prefix); empty "
        "means HOME/blobs.",
    )
    dataset_roots: str = Field(
        "",
        description="URLs of folders and buckets (file:///..., s3://bucket/prefix, gs://...) that "
        "data sets may refer to, separated by spaces; `{model}` stands for the name of the model; "
        "empty for none.",
    )
    training_data: str = Field(
        "",
        description="Folder of the data for training runs; empty means HOME/training-data.",
    )
    max_weights: int = Field(
        100_000_000,
        gt=0,
        description="Maximum number of weights of a network that is trained.",
    )
    max_epochs: int = Field(
        10_000, gt=0, description="Maximum number of `epochs` of a training run on this server."
    )
    training_workers: int = Field(
        0,
        ge=0,
        le=64,
        description="Maximum number of `workers` of a recipe: processes that load the batches of a "
        "training run on this server, each with a copy of the rows.",
    )
    training_imports: str = Field(
        "",
        description="Packages, or functions such as `timm:create_model`, that a recipe may name on "
        "this server, separated by spaces; empty for none.",
    )
    log_format: str = Field(
        "text",
        pattern="^(text|json)$",
        description="Log format on standard error: text or json.",
    )
    log_level: str = Field(
        "info",
        pattern="^(debug|info|warning|error)$",
        description="Lowest logged level: debug, info, warning or error.",
    )
    otlp_endpoint: str = Field(
        "",
        description="URL of an OpenTelemetry collector (OTLP over HTTP) that receives a span of "
        "every request and job, such as http://127.0.0.1:4318; empty for none.",
    )
    access_log: bool = Field(False, description="Whether every request is logged.")
    host: str = Field("127.0.0.1", description="Address that the server listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port of the REST server.")
    grpc_port: int = Field(
        8001, ge=-1, le=65535, description="Port of the gRPC server; -1 for none."
    )
    trusted_proxies: str = Field(
        "", description="IP addresses and networks of proxies to trust, separated by spaces."
    )
    tls_certificate: str = Field(
        "",
        description="PEM file of the server's certificate chain; it enables TLS for REST and gRPC.",
    )
    tls_key: str = Field("", description="PEM file of the certificate's private key.")
    workers: int = Field(1, ge=1, le=256, description="Server processes.")
    job_workers: int = Field(
        1, ge=0, le=64, description="Worker processes that `recalib serve` starts."
    )
    job_seconds: str = Field(
        "batch=86400 evaluate=21600 fit=21600 publish=21600 refit=21600 replay=86400 train=604800",
        pattern=r"^\s*((batch|evaluate|fit|monitor|publish|refit|replay|train)=\d{1,9}(\s+|$))*$",
        description="Longest attempts by kind of job, KIND=NUMBER, separated by spaces, without a "
        "limit for other kinds, in seconds.",
    )
    max_upload_bytes: int = Field(
        16 * 1024 * _MIB, gt=0, description="Largest data set that can be uploaded, in bytes."
    )
    max_body_bytes: int = Field(
        64 * _MIB,
        gt=0,
        description="Largest body of a calibrate request in a binary format, in bytes.",
    )
    max_message_bytes: int = Field(
        16 * _MIB,
        gt=0,
        description="Largest gRPC message, if it is below the largest body, in bytes.",
    )
    max_json_bytes: int = Field(
        4 * _MIB,
        gt=0,
        description="Largest JSON body of a request with logits, labels or parameters, in bytes.",
    )
    max_bodies_bytes: int = Field(
        128 * _MIB,
        gt=0,
        description="Memory of each server process for bodies that are received or processed, at "
        "least twice the largest body, in bytes.",
    )
    receive_seconds: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="Time for a head, and between two parts of a body, in seconds.",
    )
    max_requests: int = Field(
        256,
        gt=0,
        description="Maximum number of HTTP requests in progress of each server process; others "
        "are answered with 503.",
    )
    address_rpcs: int = Field(
        512,
        gt=0,
        description="Maximum number of RPCs of one IP address in progress in each server process, "
        "also incomplete ones and streams; others end with RESOURCE_EXHAUSTED.",
    )
    max_rows: int = Field(
        100_000, gt=0, description="Maximum number of rows of one calibrate request."
    )
    prediction_ids: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of predictions that get an id, unless the request sets it.",
    )
    max_labels: int = Field(10_000, gt=0, description="Maximum number of labels of one request.")
    label_lifetime_seconds: float = Field(
        30 * 86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="How long after a prediction its label is accepted, in seconds.",
    )
    flush_seconds: float = Field(
        5.0,
        gt=0,
        allow_inf_nan=False,
        description="Interval at which a server process stores its counts of predictions, in "
        "seconds.",
    )
    bucket_seconds: int = Field(
        300,
        ge=1,
        le=3600,
        description="Time resolution of the counts of predictions, the same in all processes, in "
        "seconds.",
    )
    capture_seconds: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="Interval at which a server process stores sampled logits, in seconds.",
    )
    monitor_seconds: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="Interval at which a worker assesses matured predictions, in seconds.",
    )
    monitor_shards: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of monitoring jobs that share the models; workers run them side by "
        "side. The same in all server processes.",
    )
    lease_seconds: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a job belongs to a worker without a heartbeat, in seconds.",
    )
    poll_seconds: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Interval at which an idle worker polls for jobs, in seconds.",
    )
    cluster: str = Field(
        "",
        description="Where jobs on large data sets compute: threads:N, processes:N, local:N, "
        "tcp://HOST:PORT or tls://HOST:PORT, as `--cluster`; empty for the memory of the worker.",
    )
    cluster_bytes: int = Field(
        1024 * _MIB, gt=0, description="Size from which a data set is large, in bytes."
    )
    cache_bytes: int = Field(
        1024 * _MIB,
        gt=0,
        description="Memory for loaded calibrators in each server process, in bytes.",
    )
    load_seconds: float = Field(
        5.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a request waits for a calibrator that is being loaded, in seconds.",
    )
    warm_champions: int = Field(
        100,
        ge=0,
        le=100_000,
        description="Number of champions, those that were promoted last, that a server process "
        "loads before it accepts requests, for at most RECALIB_LOAD_SECONDS.",
    )
    refresh_seconds: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Interval at which a server process checks for promotions, in seconds.",
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
        """Return the sources of settings, in order of precedence."""
        files = SettingsFromFiles(settings_cls), SettingsFromToml(settings_cls)
        return (init_settings, env_settings, *files)

    @property
    def seconds_of_jobs(self) -> dict[str, float]:
        """The longest attempt of each kind of job."""
        words = (word.partition("=") for word in self.job_seconds.split())
        return {kind: float(seconds) for kind, _, seconds in words}

    @property
    def resolved_database_url(self) -> str:
        """The database URL, with the default."""
        return self.database_url or f"sqlite:///{self.home.absolute() / 'recalib.db'}"

    @property
    def resolved_blob_url(self) -> str:
        """The blob URL, with the default."""
        return self.blob_url or (self.home.absolute() / "blobs").as_uri()

    @property
    def resolved_training_data(self) -> Path:
        """The folder of training data, with the default."""
        return Path(self.training_data) if self.training_data else self.home / "training-data"

    @property
    def allowed_imports(self) -> frozenset[str]:
        """The entries of `training_imports`."""
        return frozenset(self.training_imports.split())
