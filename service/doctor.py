"""The checks of `recalib doctor` and the console. Each returns a result and changes nothing."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from recalib.core.packages import is_installed
from recalib.errors import RecalibError
from recalib.registry import Registry, migrate
from recalib.settings import Settings
from recalib.settings.effective import effective_settings, redact, unknown_variables
from service.addresses import check_tls, is_loopback

_State = Literal["ok", "warning", "failed"]

#: With less free space, an upload or a checkpoint may not fit.
_MIN_FREE_BYTES = 2 * 2**30
#: Prediction ids are refused if clocks differ by five minutes; the check fails long before.
_MAX_CLOCK_SKEW_SECONDS = 5.0
_KEY_EXPIRY_WARNING_SECONDS = 7 * 86_400.0
_MAX_QUEUE_SECONDS = 60.0
#: The threshold of the alert `MonitoringStands`.
_MAX_ASSESSMENT_AGE_SECONDS = 1_800.0
_PROBE_BYTES = b"recalib doctor"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    check: str
    state: _State
    detail: str


def check_settings(
    settings: Settings, from_command_line: Set[str] = frozenset()
) -> Iterator[CheckResult]:
    """Run the checks that need no database; a check that fails does not stop the others.

    Parameters
    ----------
    from_command_line: names of the settings that the command line gives.
    """
    yield _run("settings", lambda: _check_settings(settings, from_command_line))
    yield _run("tls", lambda: _check_tls(settings))
    yield _run("database tls", lambda: _check_database_tls(settings))
    if settings.oidc_issuer:
        yield _run("oidc", lambda: _check_oidc(settings))
    if settings.dataset_roots:
        yield _run("data set roots", lambda: _check_dataset_roots(settings))


def check_gpu() -> CheckResult:
    """Return the GPUs of this machine; torch is imported."""
    return _run("gpu", _check_gpu)


def check_pictures() -> CheckResult:
    """Return whether reports, evaluations and the console can draw."""
    missing = [name for name in ("altair", "vl_convert") if not is_installed(name)]
    if missing:
        detail = f"no package {missing[0]}: reports need pip install 'recalib[pictures]'"
        return CheckResult("pictures", "warning", detail)
    return CheckResult("pictures", "ok", "altair and vl_convert are installed")


def check_registry(registry: Registry, settings: Settings) -> Iterator[CheckResult]:
    """Run the checks of database and blobs, unless they depend on one that has failed."""
    missing_database_file = registry.missing_database_file
    if missing_database_file is not None:
        detail = f"there is no {missing_database_file} yet; recalib serve makes it"
        yield CheckResult("database", "warning", detail)
        return
    database = _run("database", lambda: _check_database(registry))
    yield database
    if database.state == "ok":
        yield _run("clock", lambda: _check_clock(registry))
        schema = _run("schema", lambda: _check_schema(registry))
        yield schema
        # Tables of another schema revision cannot be read.
        if schema.state == "ok":
            checks: dict[str, Callable[[], CheckResult]] = {
                "signing key": lambda: _check_signing_key(registry),
                "api keys": lambda: _check_api_keys(registry, settings),
                "jobs": lambda: _check_jobs(registry),
                "monitoring": lambda: _check_monitoring(registry),
            }
            for name, check in checks.items():
                yield _run(name, check)
    yield _run("blobs", lambda: _check_blobs(registry))


def _run(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    try:
        return check()
    except (RecalibError, OSError) as error:
        # The message of a driver may repeat a URL with its password.
        return CheckResult(name, "failed", redact(str(error)))


def _check_settings(settings: Settings, from_command_line: Set[str]) -> CheckResult:
    """List the settings that differ from their defaults, and variables that are not settings."""
    changed = ", ".join(
        f"{setting['name']} {setting['value']} ({setting['from']})"
        for setting in effective_settings(settings, from_command_line)
        if setting["value"] != setting["default"]
    )
    detail = changed or "all are the defaults"
    if unknown := unknown_variables():
        return CheckResult("settings", "warning", f"{'; '.join(unknown)}; {detail}")
    return CheckResult("settings", "ok", detail)


def _check_tls(settings: Settings) -> CheckResult:
    warning = check_tls(settings)
    detail = warning or settings.tls_certificate or "none: on loopback, or trusted proxies have it"
    return CheckResult("tls", "warning" if warning else "ok", detail)


def _check_database_tls(settings: Settings) -> CheckResult:
    """Warn if the connection to a database on another machine may be unencrypted."""
    from recalib.registry.engine import remote_tls_mode

    mode = remote_tls_mode(settings.resolved_database_url)
    if mode is None:
        return CheckResult("database tls", "ok", "none needed: the database is on this machine")
    if mode == "verify-full":
        return CheckResult("database tls", "ok", f"sslmode={mode}")
    fix = "add sslmode=verify-full&sslrootcert=FILE to the database URL"
    if mode in ("require", "verify-ca"):
        detail = f"sslmode={mode} encrypts, and does not verify the host: {fix}"
        return CheckResult("database tls", "ok", detail)
    detail = f"sslmode={mode} permits a connection without encryption: {fix}"
    return CheckResult("database tls", "warning", detail)


def _check_oidc(settings: Settings) -> CheckResult:
    from service.access.jwks import IssuerKeys
    from service.access.oidc import OidcConfig

    oidc = OidcConfig.of(settings)
    if oidc is None:
        return CheckResult("oidc", "ok", "no issuer")
    keys = IssuerKeys(oidc)
    keys.refresh()
    people = f"; people sign in as {oidc.client_id!r}" if oidc.client_id else ""
    detail = f"{oidc.issuer} has {len(keys)} keys, for {oidc.audience!r}{people}"
    return CheckResult("oidc", "ok", detail)


def _check_dataset_roots(settings: Settings) -> CheckResult:
    from recalib.files.fragments import filesystem_of
    from recalib.references import DatasetRoots

    roots = DatasetRoots(settings.dataset_roots).fixed
    for root in roots:
        filesystem, path = filesystem_of(root, "RECALIB_DATASET_ROOTS")
        if not filesystem.exists(path):
            return CheckResult("data set roots", "failed", f"nothing can be read at {root}")
    return CheckResult("data set roots", "ok", f"data sets may refer to {settings.dataset_roots}")


def _check_gpu() -> CheckResult:
    if importlib.util.find_spec("torch") is None:
        return CheckResult("gpu", "ok", "torch is not installed: this machine only serves")
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    devices = ", ".join(names) if names else "none; fits and small networks run on the CPU"
    return CheckResult("gpu", "ok", f"{devices} (torch {torch.__version__})")


def _check_database(registry: Registry) -> CheckResult:
    started = time.perf_counter()
    with registry.reading() as tx:
        tx.clock()
        dialect = tx.health.dialect
    milliseconds = (time.perf_counter() - started) * 1000
    registry.verify()
    return CheckResult("database", "ok", f"{dialect} answers in {milliseconds:.1f} ms")


def _check_clock(registry: Registry) -> CheckResult:
    before = time.time()
    with registry.reading() as tx:
        database_time = tx.clock()
    skew = database_time - (before + time.time()) / 2
    state: _State = "ok" if abs(skew) < _MAX_CLOCK_SKEW_SECONDS else "failed"
    return CheckResult("clock", state, f"the database's clock is {skew:+.3f} s from this machine's")


def _check_schema(registry: Registry) -> CheckResult:
    with registry.reading() as tx:
        revision = tx.health.schema_revision()
    head = migrate.head()
    if revision == head:
        return CheckResult("schema", "ok", f"at {revision}")
    detail = f"at {revision or 'nothing'}, and this version needs {head}"
    if advice := migrate.development_advice(revision):
        return CheckResult("schema", "failed", f"{detail}: {advice}")
    if revision is None or migrate.is_known(revision):
        return CheckResult("schema", "warning", f"{detail}: recalib serve migrates it")
    return CheckResult("schema", "failed", f"{detail}: the database belongs to a later version")


def _check_signing_key(registry: Registry) -> CheckResult:
    with registry.reading() as tx:
        keys = tx.signing_keys.all()
    if not keys:
        return CheckResult("signing key", "ok", "none yet; the first server makes it")
    return CheckResult("signing key", "ok", f"number {max(keys)} signs, {len(keys)} verify")


def _check_api_keys(registry: Registry, settings: Settings) -> CheckResult:
    with registry.reading() as tx:
        active = tx.api_keys.active()
    is_public = not is_loopback(settings.host)
    if is_public and not settings.insecure and not active:
        if settings.oidc_issuer:
            return CheckResult("api keys", "ok", "none; requests need a token of the issuer")
        return CheckResult("api keys", "failed", f"none, and {settings.host} needs one")
    deadline = time.time() + _KEY_EXPIRY_WARNING_SECONDS
    expiring = [
        key.name for key in active if key.expires_at is not None and key.expires_at < deadline
    ]
    if expiring:
        return CheckResult("api keys", "warning", f"expire within a week: {', '.join(expiring)}")
    if is_public and settings.insecure:
        detail = "not required: every client that reaches this server may do everything"
        return CheckResult("api keys", "warning", detail)
    return CheckResult("api keys", "ok", f"{len(active)} active")


def _check_jobs(registry: Registry) -> CheckResult:
    with registry.reading() as tx:
        jobs = tx.health.jobs()
    detail = f"{jobs.queued} queued, {jobs.running} running, {jobs.failed_last_day} failed in a day"
    if jobs.expired_leases:
        detail += f"; {jobs.expired_leases} held by workers that are gone"
    elif jobs.longest_wait_seconds > _MAX_QUEUE_SECONDS:
        detail += f"; one has waited {jobs.longest_wait_seconds:.0f} s: is a worker up?"
    elif not jobs.failed_last_day:
        return CheckResult("jobs", "ok", detail)
    return CheckResult("jobs", "warning", detail)


def _check_monitoring(registry: Registry) -> CheckResult:
    with registry.reading() as tx:
        database_time = tx.clock()
        ages = {model: database_time - row.assessed_at for model, _, row in tx.monitors.champions()}
        # A champion that was never assessed is as old as its promotion.
        ages |= {
            model: database_time - since
            for model, _, since in tx.monitors.champions_without_monitor()
        }
    if not ages:
        return CheckResult("monitoring", "ok", "no model has a champion to monitor")
    model, age = max(ages.items(), key=lambda item: item[1])
    detail = f"champions: {len(ages)}; {model} not assessed for {age:.0f} s"
    if age > _MAX_ASSESSMENT_AGE_SECONDS:
        return CheckResult("monitoring", "warning", f"{detail}: is a worker up, or busy?")
    return CheckResult("monitoring", "ok", detail)


def _check_blobs(registry: Registry) -> CheckResult:
    blobs = registry.blobs
    # The blob is written as an upload is, and never committed, so nothing of it stays.
    with blobs.writer() as probe:
        probe.write(_PROBE_BYTES)
        with probe.open_temporary() as file:
            if file.read() != _PROBE_BYTES:
                return CheckResult("blobs", "failed", f"{blobs.url} returns other bytes")
    if not blobs.is_local:
        return CheckResult("blobs", "ok", f"{redact(blobs.url)} can be written and read")
    free_bytes = shutil.disk_usage(blobs.root).free
    state: _State = "ok" if free_bytes >= _MIN_FREE_BYTES else "warning"
    detail = f"{blobs.root} can be written and read, {free_bytes / 2**30:.1f} GiB free"
    return CheckResult("blobs", state, detail)
