"""Every setting of Recalib, in one class.

Sources, in order of precedence: the command line, the environment variable ``RECALIB_<NAME>``, the
file that ``RECALIB_<NAME>_FILE`` names, the TOML file that ``RECALIB_CONFIG`` names, the default.
An empty variable counts as unset. Relative paths start at the working directory. The comment above
a setting is its description on pages. A test compares `docs/settings.md` with this class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from recalib.settings.secret_files import values_of_files
from recalib.settings.toml_file import values_of_config

_MIB = 2**20
_Positive = Annotated[int, Field(gt=0)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_JobSeconds = Annotated[
    str,
    Field(
        pattern=r"^\s*((batch|evaluate|fit|monitor|publish|refit|replay|train)=\d{1,9}(\s+|$))*$"
    ),
]
_Url = Annotated[str, Field(pattern=r"^(https?://[!-~]+)?$")]


class Settings(BaseSettings):
    """Settings of `recalib serve` and `recalib worker`."""

    model_config = SettingsConfigDict(env_prefix="RECALIB_", env_ignore_empty=True, extra="ignore")

    #: TOML file of settings, with lower-case names; empty for none.
    config: str = ""
    #: Whether every request needs an API key. Always true at an address that other machines reach.
    require_keys: bool = False
    #: Serve without API keys at an address that other machines reach.
    insecure: bool = False
    #: Names besides loopback names that a server without keys accepts in `Host`, without ports,
    #: separated by spaces.
    allowed_hosts: str = ""
    #: Origins of web pages that may call the server, such as https://app.example.com, separated by
    #: spaces; empty for none.
    cors_origins: str = ""
    #: Whether the OpenAPI document, `/docs` and gRPC reflection need no API key where other
    #: requests do.
    public_docs: bool = False
    #: OpenID Connect issuer whose tokens are accepted like API keys, as in `iss`; empty for none.
    oidc_issuer: str = ""
    #: Required `aud` of tokens; mandatory with an issuer.
    oidc_audience: str = ""
    #: URL of the issuer's keys; empty means the URL of its discovery document.
    oidc_jwks_url: str = ""
    #: Accepted signature algorithms, some of RS256, RS384, RS512, PS256, PS384, PS512, ES256,
    #: ES384, ES512 and EdDSA.
    oidc_algorithms: str = "RS256 ES256"
    #: Claim with the scopes of a token, a string of words or a list; `outer.inner` for a nested
    #: claim.
    oidc_scope_claim: Annotated[str, Field(min_length=1)] = "scope"
    #: Mapping of Recalib's scopes to words of that claim, SCOPE=WORD, separated by spaces.
    oidc_scopes: str = (
        "metrics=recalib:metrics predict=recalib:predict label=recalib:label fit=recalib:fit "
        "admin=recalib:admin"
    )
    #: Claim with the models that a token is for, `*` for all; empty means that every token is for
    #: all models.
    oidc_models_claim: str = ""
    #: Tolerated difference between the issuer's clock and the server's, in seconds.
    oidc_leeway_seconds: Annotated[float, Field(ge=0, le=300)] = 30.0
    #: How long the issuer's keys stay valid while the issuer is unreachable, in seconds.
    oidc_keys_seconds: _Seconds = 86_400.0
    #: Id of the console at the issuer, where people then sign in; empty: with API keys only.
    oidc_client_id: str = ""
    #: Secret of that id; empty for a public client.
    oidc_client_secret: str = ""
    #: Words that a sign-in asks the issuer for, `openid` among them, separated by spaces.
    oidc_client_scopes: str = "openid"
    #: How long a person whom the issuer has signed in stays signed in, in seconds.
    oidc_session_seconds: Annotated[float, Field(ge=60, le=43_200)] = 28_800.0
    #: Requests per second of each API key or token without its own limit; 0 for no limit, as in the
    #: next four settings.
    key_requests_per_second: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    #: Calibrated rows per second of each API key or token.
    key_rows_per_second: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    #: Concurrent requests of each API key or token.
    key_concurrency: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    #: Largest body of each API key or token, if it is below the general limit, in bytes.
    key_body_bytes: Annotated[int, Field(ge=0, le=2**50)] = 0
    #: Jobs of each API key or token that wait for a worker.
    key_queued_jobs: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    #: Retention of the audit trail, in seconds.
    audit_seconds: _Seconds = 365 * 86_400.0
    #: Retention of events, in seconds.
    events_seconds: _Seconds = 30 * 86_400.0
    #: URL at which people reach the server, for the commands of alerts and the links of the
    #: console; empty for none.
    public_url: _Url = ""
    #: URL of this documentation, as `make docs` builds it, for links in the console and in the
    #: OpenAPI document; empty for none.
    docs_url: _Url = ""
    #: URL of docs/operations.md, for links in alerts.
    runbook_url: Annotated[str, Field(pattern=r"^[!-~]+$")] = "docs/operations.md"
    #: URL of the Grafana dashboard of calibration, for links in alerts.
    dashboard_url: _Url = ""
    #: Names, addresses and networks that webhooks may reach although they are not public, separated
    #: by spaces.
    webhook_targets: str = ""
    #: Attempts to deliver an event to a webhook; ten take about 20 hours.
    webhook_attempts: Annotated[int, Field(ge=1, le=100)] = 10
    #: Maximum number of event streams over gRPC of each server process.
    max_event_streams: _Positive = 100
    # Servers that have not seen the deletion yet still write counts and logits.
    #: Time after which the content of deleted models, data sets, versions and training runs is
    #: erased, in seconds.
    deleted_seconds: Annotated[float, Field(ge=60, le=1e10)] = 7 * 86_400.0
    #: Folder of the SQLite database and the blobs, unless a URL is set.
    home: Path = Path.home() / ".recalib"
    #: SQLAlchemy URL of the registry; empty means SQLite at HOME/recalib.db. PostgreSQL:
    #: postgresql://user:password@host/name.
    database_url: str = ""
    #: fsspec URL of the folder for blobs (file:///..., s3://bucket/prefix); empty means HOME/blobs.
    blob_url: str = ""
    #: URLs of folders and buckets (file:///..., s3://bucket/prefix, gs://...) that data sets may
    #: refer to, separated by spaces; `{model}` stands for the name of the model; empty for none.
    dataset_roots: str = ""
    #: Folder of the data for training runs; empty means HOME/training-data.
    training_data: str = ""
    #: Maximum number of weights of a network that is trained.
    max_weights: _Positive = 100_000_000
    #: Maximum number of `epochs` of a training run on this server.
    max_epochs: _Positive = 10_000
    #: Maximum number of `workers` of a recipe: processes that load the batches of a training run on
    #: this server, each with a copy of the rows.
    training_workers: Annotated[int, Field(ge=0, le=64)] = 0
    #: Packages, or functions such as `timm:create_model`, that a recipe may name on this server,
    #: separated by spaces; empty for none.
    training_imports: str = ""
    #: Log format on standard error: text or json.
    log_format: Annotated[str, Field(pattern="^(text|json)$")] = "text"
    #: Lowest logged level: debug, info, warning or error.
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
    #: URL of an OpenTelemetry collector (OTLP over HTTP) that receives a span of every request and
    #: job, such as http://127.0.0.1:4318; empty for none.
    otlp_endpoint: str = ""
    #: Whether every request is logged.
    access_log: bool = False
    #: Address that the server listens on.
    host: str = "127.0.0.1"
    #: Port of the REST server.
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    #: Port of the gRPC server; -1 for none.
    grpc_port: Annotated[int, Field(ge=-1, le=65535)] = 8001
    #: IP addresses and networks of proxies to trust, separated by spaces.
    trusted_proxies: str = ""
    #: PEM file of the server's certificate chain; it enables TLS for REST and gRPC.
    tls_certificate: str = ""
    #: PEM file of the certificate's private key.
    tls_key: str = ""
    #: Server processes.
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    #: Worker processes that `recalib serve` starts.
    job_workers: Annotated[int, Field(ge=0, le=64)] = 1
    #: Longest attempts by kind of job, KIND=NUMBER, separated by spaces, without a limit for other
    #: kinds, in seconds.
    job_seconds: _JobSeconds = (
        "batch=86400 evaluate=21600 fit=21600 publish=21600 refit=21600 replay=86400 train=604800"
    )
    #: Largest data set that can be uploaded, in bytes.
    max_upload_bytes: _Positive = 16 * 1024 * _MIB
    #: Largest body of a calibrate request in a binary format, in bytes.
    max_body_bytes: _Positive = 64 * _MIB
    #: Largest gRPC message, if it is below the largest body, in bytes.
    max_message_bytes: _Positive = 16 * _MIB
    #: Largest JSON body of a request with logits, labels or parameters, in bytes.
    max_json_bytes: _Positive = 4 * _MIB
    #: Memory of each server process for bodies that are received or processed, at least twice the
    #: largest body, in bytes.
    max_bodies_bytes: _Positive = 128 * _MIB
    #: Time for a head, and between two parts of a body, in seconds.
    receive_seconds: _Seconds = 10.0
    #: Maximum number of HTTP requests in progress of each server process; others are answered with
    #: 503.
    max_requests: _Positive = 256
    #: Maximum number of RPCs of one IP address in progress in each server process, also incomplete
    #: ones and streams; others end with RESOURCE_EXHAUSTED.
    address_rpcs: _Positive = 512
    #: Maximum number of rows of one calibrate request.
    max_rows: _Positive = 100_000
    #: Share of predictions that get an id, unless the request sets it.
    prediction_ids: Annotated[float, Field(ge=0, le=1)] = 1.0
    #: Maximum number of labels of one request.
    max_labels: _Positive = 10_000
    #: How long after a prediction its label is accepted, in seconds.
    label_lifetime_seconds: _Seconds = 30 * 86_400.0
    #: Interval at which a server process stores its counts of predictions, in seconds.
    flush_seconds: _Seconds = 5.0
    #: Time resolution of the counts of predictions, the same in all processes, in seconds.
    bucket_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    #: Interval at which a server process stores sampled logits, in seconds.
    capture_seconds: _Seconds = 60.0
    #: Interval at which a worker assesses matured predictions, in seconds.
    monitor_seconds: _Seconds = 60.0
    #: Number of monitoring jobs that share the models; workers run them side by side. The same in
    #: all server processes.
    monitor_shards: Annotated[int, Field(ge=1, le=64)] = 1
    #: How long a job belongs to a worker without a heartbeat, in seconds.
    lease_seconds: _Seconds = 30.0
    #: Interval at which an idle worker polls for jobs, in seconds.
    poll_seconds: _Seconds = 0.5
    #: Where jobs on large data sets compute: threads:N, processes:N, local:N, tcp://HOST:PORT or
    #: tls://HOST:PORT, as `--cluster`; empty for the memory of the worker.
    cluster: str = ""
    #: Size from which a data set is large, in bytes.
    cluster_bytes: _Positive = 1024 * _MIB
    #: Memory for loaded calibrators in each server process, in bytes.
    cache_bytes: _Positive = 1024 * _MIB
    #: How long a request waits for a calibrator that is being loaded, in seconds.
    load_seconds: _Seconds = 5.0
    #: Number of champions, those that were promoted last, that a server process loads before it
    #: accepts requests, for at most RECALIB_LOAD_SECONDS.
    warm_champions: Annotated[int, Field(ge=0, le=100_000)] = 100
    #: Interval at which a server process checks for promotions, in seconds.
    refresh_seconds: _Seconds = 0.5

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
        names = settings_cls.model_fields.keys()
        files = (values_of_files(names), values_of_config(names))
        return (init_settings, env_settings, *(InitSettingsSource(cls, values) for values in files))

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
