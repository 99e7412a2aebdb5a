"""Client-side record of operations, and the guarantees that a service must keep after a fault.

Each kind of operation has a thread that repeats it, so that a fault interrupts all kinds. An
operation with a success response is *acknowledged*; without a response, or with a 503, its outcome
is unknown. The guarantees:

- an acknowledged upload has its row and its blob, byte for byte; an unknown one both or neither;
  after a sweep no other blob or temporary file is left;
- acknowledged promotions are in the history once and in order; unknown ones once or never;
- acknowledged labels are stored; of an unknown batch, all are or none; no other label is stored;
- an acknowledged model exists, and a repeat with the same idempotency key changes nothing;
- models, uploads and fits are in the audit trail once if they exist, and otherwise not;
- an acknowledged fit is a job; a repeat with the same idempotency key returns the same job;
- each prediction is counted at most once, and counts never decrease.

No response contains a traceback, an error other than 503, or wrong numbers.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import numpy as np
from sqlalchemy import select

import recalib
from recalib.registry import Registry, monitoring_tables, tables
from tests.end_to_end.programs import Programs, Server, until
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz

__all__ = ["BATCH", "MODEL", "Entry", "Ledger", "open_ledger", "publish_two"]

MODEL, _CLASSES = "digits", 4
_PATH = f"/v1/models/{MODEL}"
_ROWS, _TRUTH = draw(12, _CLASSES, 3.0, seed=7)
_PATIENCE_SECONDS = 60.0
_DIGEST, _DIGEST_BYTES = monitoring_tables.labels.c.digest, 16
#: Pause between two operations of a kind. Each upload is measured by every metric, so that more
#: operations would only cost processor time.
_PAUSE_SECONDS = {
    "upload": 0.5, "promote": 0.15, "label": 0.15, "predict": 0.1, "fit": 0.5, "create": 0.15,
}  # fmt: skip
#: The same for traffic with as many changes as possible, and the threads of each kind. Monitoring
#: and fits take processor time as well.
_VOLUME_PAUSE_SECONDS = {
    "upload": 3.0, "promote": 0.05, "label": 0.0, "predict": 0.02, "fit": 3.0, "create": 0.0,
}  # fmt: skip
_VOLUME_THREADS = {"label": 4, "create": 6}
#: Labels in a request.
BATCH = 2


@dataclass
class Entry:
    """One operation of a client."""

    key: str
    content: Any = None
    acknowledged: bool = False


@dataclass
class Ledger:
    """All operations on one registry, over any number of server restarts."""

    registry: Registry
    uploads: list[Entry] = field(default_factory=list)
    promotions: list[Entry] = field(default_factory=list)
    labels: list[Entry] = field(default_factory=list)
    fits: list[Entry] = field(default_factory=list)
    models: list[Entry] = field(default_factory=list)
    #: Rows with a response, and rows of requests without one.
    predicted: int = 0
    perhaps_predicted: int = 0
    #: Violations.
    wrong: list[str] = field(default_factory=list)
    #: Kinds of operations that lost their connection.
    cut: set[str] = field(default_factory=set)
    #: Number of 503 responses by kind.
    refused: dict[str, int] = field(default_factory=dict)
    _ids: list[str] = field(default_factory=list)
    #: Fits whose job has been compared, models to be tried again, and a lock of `_ids`.
    _compared_fits: int = 0
    _unfinished_models: list[Entry] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counted: int = 0
    _expected: list[Any] = field(default_factory=list)

    @contextlib.contextmanager
    def traffic(
        self, server: Server, *, fits: bool = False, volume: bool = False
    ) -> Iterator[None]:
        """Run all kinds of operations during the block; they retry while the server is down.

        Parameters
        ----------
        volume: whether to make as many changes as possible, models included.
        """
        stop = threading.Event()
        acts = [self._upload, self._promote, self._label, self._predict]
        if fits:
            acts.append(self._fit)
        if volume:
            acts += [self._label] * (_VOLUME_THREADS["label"] - 1)
            acts += [self._create] * _VOLUME_THREADS["create"]
        pauses = _VOLUME_PAUSE_SECONDS if volume else _PAUSE_SECONDS
        threads = [
            threading.Thread(target=self._repeat, args=(act, server.url, stop, pauses))
            for act in acts
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def until_acknowledged(self, more: int = 1) -> None:
        """Wait until `more` further uploads, promotions and labels each are acknowledged."""
        kinds = (self.uploads, self.promotions, self.labels)
        goals = [_acknowledged(kind) + more for kind in kinds]

        def reached() -> bool:
            done = all(_acknowledged(k) >= goal for k, goal in zip(kinds, goals, strict=True))
            return done or bool(self.wrong)

        until(reached, "operations to be acknowledged")

    def check(self, server: Server) -> None:
        """Check every guarantee for every operation in the ledger."""
        assert self.wrong == [], self.wrong
        self._check_uploads()
        self._check_promotions()
        self._check_labels()
        self._check_fits(server)
        self._check_models()
        self.check_predictions()

    def counted(self) -> int:
        """Return how many predictions the registry has counted."""
        with self.registry.reading() as tx:
            model = tx.models.get(MODEL)
            rows_by_version = [tx.traffic.between(model, version, 0, 1e11) for version in (1, 2)]
        return sum(row.predictions for rows in rows_by_version for row in rows)

    def check_predictions(self) -> None:
        """Check that no prediction is counted twice and that counts did not decrease."""
        counted = self.counted()
        most = self.predicted + self.perhaps_predicted
        assert self._counted <= counted <= most, (self._counted, counted, most)
        self._counted = counted

    # Operations of the clients.

    def _repeat(
        self,
        act: Callable[[httpx2.Client, Any], None],
        url: str,
        stop: threading.Event,
        pauses: Mapping[str, float],
    ) -> None:
        kind = act.__name__.strip("_")
        with httpx2.Client(base_url=url, timeout=_PATIENCE_SECONDS) as client:
            while not stop.is_set() and not self.wrong:
                try:
                    act(client, kind)
                except httpx2.TransportError:
                    self.cut.add(kind)
                    stop.wait(0.05)
                except Exception as error:  # a thread's own error must fail its test
                    self.wrong.append(f"{kind}: {error!r}")
                stop.wait(pauses[kind])

    def _upload(self, client: httpx2.Client, kind: str) -> None:
        number = len(self.uploads)
        body = npz(*draw(60, _CLASSES, 2.0, seed=number))
        entry = Entry(f"data-{number}", hashlib.sha256(body).hexdigest())
        self.uploads.append(entry)
        answer = client.put(f"{_PATH}/datasets/{entry.key}", content=body, headers=NPZ)
        if self._succeeded(kind, answer):
            assert answer.json()["digest"] == entry.content
            entry.acknowledged = True

    def _promote(self, client: httpx2.Client, kind: str) -> None:
        entry = Entry(f"reason {uuid4().hex}", 2 - len(self.promotions) % 2)
        self.promotions.append(entry)
        body = {"version": entry.content, "reason": entry.key}
        answer = client.put(f"{_PATH}/aliases/champion", json=body)
        entry.acknowledged = self._succeeded(kind, answer)

    def _label(self, client: httpx2.Client, kind: str) -> None:
        with self._lock:
            ids, self._ids = self._ids[:BATCH], self._ids[BATCH:]
        if not ids:
            time.sleep(0.01)
            return
        entry = Entry("", [{"prediction_id": id, "label": 1} for id in ids])
        self.labels.append(entry)
        answer = client.post(f"{_PATH}/labels", json=entry.content)
        if self._succeeded(kind, answer):
            assert answer.json()["counts"]["accepted"] == len(ids)
            entry.acknowledged = True

    def _predict(self, client: httpx2.Client, kind: str) -> None:
        self.perhaps_predicted += len(_ROWS)
        answer = client.post(f"{_PATH}/calibrate", json={"logits": _ROWS.tolist()})
        if self._succeeded(kind, answer):
            self.perhaps_predicted -= len(_ROWS)
            self.predicted += len(_ROWS)
            body = answer.json()
            expected = self._expected_of(body["calibrator"]["version"])
            np.testing.assert_allclose(body["probabilities"], expected, atol=1e-6)
            # A server without a signing key and without its registry returns no ids.
            with self._lock:
                self._ids += [id for id in body["prediction_ids"] if id is not None]

    def _fit(self, client: httpx2.Client, kind: str) -> None:
        entry = next((fit for fit in self.fits if not fit.acknowledged), None)
        if entry is None:
            entry = Entry(uuid4().hex)
            self.fits.append(entry)
        headers = {"Idempotency-Key": entry.key}
        body = {"dataset": "validation", "promote": False}
        answer = client.post(f"{_PATH}/calibrators", json=body, headers=headers)
        if self._succeeded(kind, answer):
            entry.content, entry.acknowledged = answer.json()["id"], True

    def _create(self, client: httpx2.Client, kind: str) -> None:
        try:
            entry = self._unfinished_models.pop()
        except IndexError:
            entry = Entry(f"model-{uuid4().hex}")
            self.models.append(entry)
        headers = {"Idempotency-Key": entry.key}
        body = {"name": entry.key, "classes": 3}
        try:
            answer = client.post("/v1/models", json=body, headers=headers)
            entry.acknowledged = self._succeeded(kind, answer)
        finally:
            if not entry.acknowledged:
                self._unfinished_models.append(entry)

    def _succeeded(self, kind: str, answer: httpx2.Response) -> bool:
        """Return whether the response is a success; any other than a proper 503 is a violation."""
        if answer.is_success:
            return True
        is_proper_503 = (
            answer.status_code == 503
            and answer.headers["content-type"] == "application/problem+json"
            and answer.headers["retry-after"]
            and "Traceback" not in answer.text
        )
        if not is_proper_503:
            self.wrong.append(f"{kind}: {answer.status_code} {answer.text}")
        self.refused[kind] = self.refused.get(kind, 0) + 1
        time.sleep(0.02)
        return False

    def _expected_of(self, version: int) -> Any:
        if not self._expected:
            with self.registry.reading() as tx:
                model = tx.models.get(MODEL)
                contents = [tx.calibrators.parameters(model, version) for version in (1, 2)]
            calibrators = [recalib.Calibrator.from_bytes(content) for content in contents]
            self._expected = [calibrator.predict(_ROWS) for calibrator in calibrators]
        return self._expected[version - 1]

    # Guarantees.

    def _check_uploads(self) -> None:
        uploaded = set()
        for entry in self.uploads:
            with self.registry.reading() as tx:
                dataset = tx.datasets.find(tx.models.get(MODEL), entry.key)
            if dataset is not None:
                uploaded.add(entry.key)
                assert dataset.digest == entry.content
                self.registry.blobs.verify(dataset.digest)
            assert dataset is not None or not entry.acknowledged, f"{entry.key} is lost"
        self.registry.sweep(older_than_seconds=-60)
        with self.registry.reading() as tx:
            names = set(tx.connection.scalars(select(tables.datasets.c.digest)))
        stored = {path.name for path in Path(self.registry.blobs.root).glob("*/*")}
        assert stored == names, "blobs without a data set, or the reverse"
        self._check_audit("upload_dataset", {entry.key for entry in self.uploads}, uploaded)

    def _check_promotions(self) -> None:
        with self.registry.reading() as tx:
            model = tx.models.get(MODEL)
            history = tx.aliases.history(model, "champion", 100_000)[::-1]
            assert tx.aliases.get(model, "champion").version == history[-1].to_version
        recorded = [
            (change.reason, change.to_version)
            for change in history
            if change.reason.startswith("reason")
        ]
        reasons = {reason for reason, _ in recorded}
        # In order, each once.
        assert recorded == [
            (entry.key, entry.content) for entry in self.promotions if entry.key in reasons
        ]
        current = 1
        for entry in self.promotions:
            # A promotion to the current version succeeds without a history entry.
            is_lost = entry.acknowledged and entry.key not in reasons and entry.content != current
            assert not is_lost, f"{entry.key} is lost"
            current = entry.content if entry.key in reasons else current

    def _check_labels(self) -> None:
        with self.registry.reading() as tx:
            stored = {bytes(digest) for digest in tx.connection.scalars(select(_DIGEST))}
        posted = 0
        for entry in self.labels:
            present = sum(_digest(label["prediction_id"]) in stored for label in entry.content)
            assert present in (0, len(entry.content)), f"half a batch: {present} labels"
            assert present or not entry.acknowledged, "labels are lost"
            posted += present
        assert posted == len(stored), f"{len(stored)} labels, {posted} of them posted"

    def _check_fits(self, server: Server) -> None:
        for entry in self.fits[self._compared_fits :]:
            body = {"dataset": "validation", "promote": False}
            again = server.ask(
                "POST", f"{_PATH}/calibrators", json=body, headers={"Idempotency-Key": entry.key}
            )
            assert entry.content in (None, again["id"])
            entry.content, entry.acknowledged = again["id"], True
        self._compared_fits = len(self.fits)
        jobs = {fit.content for fit in self.fits}
        self._check_audit("create_calibrator", jobs, jobs)

    def _check_models(self) -> None:
        with self.registry.reading() as tx:
            existing = set(tx.connection.scalars(select(tables.models.c.name)))
        for entry in self.models:
            assert entry.key in existing or not entry.acknowledged, f"{entry.key} is lost"
        self._check_audit("create_model", {entry.key for entry in self.models}, existing)

    def _check_audit(self, action: str, targets: set[str], existing: set[str]) -> None:
        """Check that the audit trail has the action once for each target that exists."""
        column = tables.audit.c
        query = select(column.target).where(column.action == action)
        with self.registry.reading() as tx:
            recorded = [target for target in tx.connection.scalars(query) if target in targets]
        assert sorted(recorded) == sorted(targets & existing), f"{action} in the audit trail"


@contextlib.contextmanager
def open_ledger(database_url: str, programs: Programs) -> Iterator[Ledger]:
    """Yield the empty ledger of a new registry with versions 1 and 2, in the home of `programs`."""
    programs.home.mkdir(exist_ok=True)
    blobs = (programs.home / "blobs").as_uri()
    with contextlib.closing(Registry(database_url, blobs)) as registry:
        registry.migrate()
        publish_two(registry)
        yield Ledger(registry)


def publish_two(registry: Registry) -> None:
    """Create the model, its data set, and versions 1 (champion) and 2, without a worker."""
    body = npz(*_calibration_set())
    with registry.blobs.writer() as blob:
        blob.write(body)
        digest = blob.commit()
    with registry.transaction() as tx:
        model = tx.models.create(MODEL, None, _CLASSES, "anna")
        tx.datasets.create(
            model, "validation", digest, 300, _CLASSES, len(body), NPZ["Content-Type"], "logits", {}
        )
    for map in ("temperature", "vector"):
        fitted = _fitted(map)
        with registry.transaction() as tx:
            tx.jobs.enqueue("fit", {}, model=model)
            lease = tx.jobs.claim("test", ["fit"], 60)
            assert lease is not None
            alias = "champion" if map == "temperature" else None
            card, data = fitted.card.to_dict(), fitted.to_bytes()
            tx.calibrators.publish(lease, model, "validation", card, data, alias, "first")
            tx.jobs.succeed(lease, {})


def _calibration_set() -> tuple[Any, Any]:
    return draw(300, _CLASSES, 3.0)


@functools.cache
def _fitted(map: str) -> recalib.Calibrator:
    return recalib.fit(*_calibration_set(), map=map)


def _digest(prediction_id: str) -> bytes:
    return base64.urlsafe_b64decode(prediction_id)[-_DIGEST_BYTES:]


def _acknowledged(entries: list[Entry]) -> int:
    return sum(entry.acknowledged for entry in entries)
