"""What `recalib doctor` looks at."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select

from recalib.cli.operate import check_tls, is_loopback, opened
from recalib.cli.shown_settings import hidden, shown, surprises
from recalib.errors import RecalibError
from recalib.registry import Registry, migrate, tables
from recalib.registry.clock import now
from recalib.settings import Settings

__all__ = ["Finding", "findings"]

_State = Literal["ok", "warning", "failed"]

#: Below this much room, an upload or a checkpoint may not fit.
_ROOM_BYTES = 2 * 2**30
#: Prediction ids are refused where clocks differ by five minutes; people are told long before.
_SKEW_SECONDS = 5.0
_DAY_SECONDS = 86_400.0
#: As the alert `MonitoringStands` has it.
_UNWATCHED_SECONDS = 1_800.0
_PROBE = b"recalib doctor"


@dataclass(frozen=True)
class Finding:
    """What one look found."""

    check: str
    state: _State
    detail: str


def findings(settings: Settings) -> Iterator[Finding]:
    """Look at everything, whatever fails before it."""
    yield from _looked("settings", lambda: _checked(settings))
    yield from _looked("tls", lambda: _tls(settings))
    if settings.oidc_issuer:
        yield from _looked("oidc", lambda: _oidc(settings))
    yield from _looked("gpu", _gpu)
    with opened(settings) as registry:
        absent = registry.absent_file
        if absent is not None:
            yield Finding(
                "database", "warning", f"there is no {absent} yet; recalib serve makes it"
            )
            return
        reached = list(_looked("database", lambda: _database(registry)))
        yield from reached
        if reached[0].state == "ok":
            yield from _looked("clock", lambda: _clock(registry))
            schema = list(_looked("schema", lambda: _schema(registry)))
            yield from schema
            reached = schema
        # Tables of another schema cannot be read.
        if reached[0].state == "ok":
            looks: dict[str, Callable[[], Finding]] = {
                "signing key": lambda: _signing_key(registry),
                "api keys": lambda: _api_keys(registry, settings),
                "jobs": lambda: _jobs(registry),
                "monitoring": lambda: _monitoring(registry),
            }
            for name, look in looks.items():
                yield from _looked(name, look)
        yield from _looked("blobs", lambda: _blobs(registry))


def _looked(name: str, look: Callable[[], Finding]) -> Iterator[Finding]:
    try:
        yield look()
    except (RecalibError, OSError) as error:
        # A driver may say again what it was given.
        yield Finding(name, "failed", hidden(str(error)))


def _checked(settings: Settings) -> Finding:
    """Say which settings are not the defaults, and which variables look like misspelt ones."""
    changed = [one for one in shown(settings, set()) if one["value"] != one["default"]]
    said = ", ".join(f"{one['name']} {one['value']} ({one['from']})" for one in changed)
    said = said or "all are the defaults"
    if odd := surprises():
        return Finding("settings", "warning", f"{' '.join(odd)} {said}")
    return Finding("settings", "ok", said)


def _tls(settings: Settings) -> Finding:
    check_tls(settings)
    if settings.tls_certificate:
        return Finding("tls", "ok", f"{settings.tls_certificate} and its key")
    if is_loopback(settings.host):
        return Finding("tls", "ok", "none, and none needed on loopback")
    return Finding("tls", "warning", "none: keys and logits go over the wire as they are")


def _gpu() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("gpu", "ok", "torch is not installed: this machine serves and does not fit")
    import torch

    names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    said = ", ".join(names) if names else "none; fits and small networks do without"
    return Finding("gpu", "ok", f"{said} (torch {torch.__version__})")


def _database(registry: Registry) -> Finding:
    started = time.perf_counter()
    with registry.reading() as tx:
        tx.connection.execute(select(now())).scalar_one()
        name = tx.connection.dialect.name
    took = (time.perf_counter() - started) * 1000
    return Finding("database", "ok", f"{name} answers in {took:.1f} ms")


def _schema(registry: Registry) -> Finding:
    with registry.reading() as tx:
        found = migrate.current(tx.connection)
    if found == migrate.head():
        return Finding("schema", "ok", f"at {found}")
    said = f"at {found or 'nothing'}, and this version needs {migrate.head()}"
    if advice := migrate.development_advice(found):
        return Finding("schema", "failed", f"{said}: {advice}")
    if found is None or migrate.is_known(found):
        return Finding("schema", "warning", f"{said}: recalib serve migrates it")
    return Finding("schema", "failed", f"{said}: the database is a later version's")


def _clock(registry: Registry) -> Finding:
    before = time.time()
    with registry.reading() as tx:
        there = float(tx.connection.execute(select(now())).scalar_one())
    apart = there - (before + time.time()) / 2
    state: _State = "ok" if abs(apart) < _SKEW_SECONDS else "failed"
    return Finding("clock", state, f"{apart:+.3f} s at the database, as seen from here")


def _oidc(settings: Settings) -> Finding:
    from service.access.oidc import OidcConfig

    oidc = OidcConfig.of(settings)
    if oidc is None:
        return Finding("oidc", "ok", "no issuer")
    from service.access.jwks import IssuerKeys

    keys = IssuerKeys(oidc)
    keys.look()
    return Finding("oidc", "ok", f"{oidc.issuer} has {len(keys)} keys, for {oidc.audience!r}")


def _signing_key(registry: Registry) -> Finding:
    with registry.reading() as tx:
        keys = tx.signing_keys.all()
    if not keys:
        return Finding("signing key", "ok", "none yet; the first server makes it")
    return Finding("signing key", "ok", f"number {max(keys)} signs, {len(keys)} verify")


def _api_keys(registry: Registry, settings: Settings) -> Finding:
    with registry.reading() as tx:
        active = tx.api_keys.active()
    needed = not is_loopback(settings.host) and not settings.insecure
    if needed and not active and settings.oidc_issuer:
        return Finding("api keys", "ok", "none; tokens of the issuer's are asked for")
    if needed and not active:
        return Finding("api keys", "failed", f"none, and {settings.host} needs one")
    soon = [
        one.name
        for one in active
        if one.expires_at is not None and one.expires_at < time.time() + 7 * _DAY_SECONDS
    ]
    if soon:
        return Finding("api keys", "warning", f"expire within a week: {', '.join(soon)}")
    if settings.insecure and not is_loopback(settings.host):
        return Finding("api keys", "warning", "whoever reaches this server may do everything")
    return Finding("api keys", "ok", f"{len(active)} active")


def _jobs(registry: Registry) -> Finding:
    jobs = tables.jobs.c
    with registry.reading() as tx:
        counts = tx.jobs.counts()
        expired = tx.connection.scalar(
            select(func.count()).where(jobs.state == "running", jobs.lease_expires < now())
        )
        failed = tx.connection.scalar(
            select(func.count()).where(
                jobs.state == "failed", jobs.finished_at > now() - _DAY_SECONDS
            )
        )
        waiting = tx.connection.scalar(
            select(now() - func.min(jobs.run_after)).where(jobs.state == "queued")
        )
    by_state = {
        state: sum(count for (_, of), count in counts.items() if of == state)
        for state in ("queued", "running")
    }
    said = f"{by_state['queued']} queued, {by_state['running']} running, {failed} failed in a day"
    if expired:
        return Finding("jobs", "warning", f"{said}; {expired} held by workers that are gone")
    if waiting is not None and waiting > 60:
        return Finding(
            "jobs", "warning", f"{said}; one has waited {waiting:.0f} s: is a worker up?"
        )
    return Finding("jobs", "warning" if failed else "ok", said)


def _monitoring(registry: Registry) -> Finding:
    with registry.reading() as tx:
        there = tx.labels.clock()
        ages = {name: there - row.assessed_at for name, _, row in tx.monitors.champions()}
        # One that nobody has looked at is as old as its promotion.
        ages |= {name: there - since for name, _, since in tx.monitors.unwatched()}
    if not ages:
        return Finding("monitoring", "ok", "no model has a champion to watch")
    name, age = max(ages.items(), key=lambda one: one[1])
    said = f"{len(ages)} champions, {name} not looked at for {age:.0f} s"
    if age > _UNWATCHED_SECONDS:
        return Finding("monitoring", "warning", f"{said}: is a worker up, or busy?")
    return Finding("monitoring", "ok", said)


def _blobs(registry: Registry) -> Finding:
    blobs = registry.blobs
    # Written as an upload is, and given up: nothing of it stays.
    with blobs.writer() as probe:
        probe.write(_PROBE)
        with probe.open_temporary() as file:
            if file.read() != _PROBE:
                return Finding("blobs", "failed", f"{blobs.url} gives back other bytes")
    if not blobs.is_local:
        return Finding("blobs", "ok", f"{hidden(blobs.url)} can be written and read")
    free = shutil.disk_usage(blobs.root).free
    state: _State = "ok" if free >= _ROOM_BYTES else "warning"
    said = f"{blobs.root} can be written and read, {free / 2**30:.1f} GiB free"
    return Finding("blobs", state, said)
