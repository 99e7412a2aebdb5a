"""What clients were told, written down by themselves, and what a service must say to it later.

Each kind of operation has a thread that does one after the other, so that whatever happens to the
server happens in the middle of all of them. An answer of success is *acknowledged*; no answer, or
503, means that the client does not know. What must hold after any fault:

- an upload that was acknowledged has its row and its blob, byte for byte; one without an answer has
  both or no name at all;
- promotions that were acknowledged are in the history, once, in their order; others once or never;
- labels that were acknowledged are there; of a batch without an answer, all are or none;
- a fit that was acknowledged is a job; asking again with the same key is the same job;
- predictions are counted at most once each, and what was once counted stays.

Nobody is ever answered with a traceback, with another error than 503, or with wrong numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
import numpy as np

import recalib
from recalib.registry import Registry
from tests.end_to_end.programs import Programs, Server, until
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz

__all__ = ["MODEL", "Entry", "Ledger", "begun", "publish_two"]

MODEL, _CLASSES = "digits", 4
_PATH = f"/v1/models/{MODEL}"
_ROWS, _TRUTH = draw(12, _CLASSES, 3.0, seed=7)
_PATIENCE_SECONDS = 60.0
#: Between two operations of a kind: enough for any fault to fall into all of them, and not more,
#: since each upload is measured by every metric.
_PAUSE_SECONDS = {"upload": 0.5, "promote": 0.15, "label": 0.15, "predict": 0.1, "fit": 0.5}


@dataclass
class Entry:
    """One operation of a client."""

    key: str
    content: Any = None
    acknowledged: bool = False


@dataclass
class Ledger:
    """All operations on one registry, over however many lives of its server."""

    registry: Registry
    uploads: list[Entry] = field(default_factory=list)
    promotions: list[Entry] = field(default_factory=list)
    labels: list[Entry] = field(default_factory=list)
    fits: list[Entry] = field(default_factory=list)
    #: Rows that were answered, and rows of requests without an answer.
    predicted: int = 0
    perhaps_predicted: int = 0
    #: What no fault may lead to.
    wrong: list[str] = field(default_factory=list)
    #: Kinds of operations that had no answer.
    cut: set[str] = field(default_factory=set)
    #: Answers 503, by kind.
    refused: dict[str, int] = field(default_factory=dict)
    _ids: list[str] = field(default_factory=list)
    _counted: int = 0
    _expected: list[Any] = field(default_factory=list)

    @contextlib.contextmanager
    def traffic(self, server: Server, *, fits: bool = False) -> Iterator[None]:
        """Do all of it at once while the block runs; who loses the server waits for the next."""
        over = threading.Event()
        acts = [self._upload, self._promote, self._label, self._predict]
        if fits:
            acts.append(self._fit)
        threads = [
            threading.Thread(target=self._go_on, args=(act, server.url, over)) for act in acts
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def until_acknowledged(self, more: int = 1) -> None:
        """Wait until so many more of uploads, promotions and labels have been acknowledged."""
        kinds = (self.uploads, self.promotions, self.labels)
        goals = [_acknowledged(kind) + more for kind in kinds]

        def look() -> bool:
            there = all(_acknowledged(k) >= goal for k, goal in zip(kinds, goals, strict=True))
            return there or bool(self.wrong)

        until(look, "operations to be acknowledged")

    def check(self, server: Server) -> None:
        """Hold the service to everything in the ledger; it may have been through anything."""
        assert self.wrong == [], self.wrong
        self._check_uploads()
        self._check_promotions()
        self._check_labels(server)
        self._check_fits(server)
        self.check_predictions()

    def counted(self) -> int:
        """Return how many predictions the registry has counted."""
        with self.registry.reading() as tx:
            model = tx.models.get(MODEL)
            found = [tx.traffic.between(model, version, 0, 1e11) for version in (1, 2)]
        return sum(one.predictions for rows in found for one in rows)

    def check_predictions(self) -> None:
        """None is counted twice, and what was counted before still is."""
        counted = self.counted()
        most = self.predicted + self.perhaps_predicted
        assert self._counted <= counted <= most, (self._counted, counted, most)
        self._counted = counted

    # What clients do.

    def _go_on(
        self, act: Callable[[httpx2.Client, Any], None], url: str, over: threading.Event
    ) -> None:
        kind = act.__name__.strip("_")
        with httpx2.Client(base_url=url, timeout=_PATIENCE_SECONDS) as client:
            while not over.is_set() and not self.wrong:
                try:
                    act(client, kind)
                except httpx2.TransportError:
                    self.cut.add(kind)
                    over.wait(0.05)
                except Exception as error:  # a thread's own error must fail its test
                    self.wrong.append(f"{kind}: {error!r}")
                over.wait(_PAUSE_SECONDS[kind])

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
        if len(self._ids) < len(_ROWS):
            time.sleep(0.01)
            return
        ids = [self._ids.pop() for _ in range(len(_ROWS))]
        entry = Entry("", [{"prediction_id": one, "label": 1} for one in ids])
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
            found = answer.json()
            expected = self._of_version(found["calibrator"]["version"])
            np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
            # One that has no signing key yet, and no registry to ask, answers without.
            self._ids += [one for one in found["prediction_ids"] if one is not None]

    def _fit(self, client: httpx2.Client, kind: str) -> None:
        entry = next((one for one in self.fits if not one.acknowledged), None)
        if entry is None:
            entry = Entry(uuid4().hex)
            self.fits.append(entry)
        headers = {"Idempotency-Key": entry.key}
        body = {"dataset": "validation", "promote": False}
        answer = client.post(f"{_PATH}/calibrators", json=body, headers=headers)
        if self._succeeded(kind, answer):
            entry.content, entry.acknowledged = answer.json()["id"], True

    def _succeeded(self, kind: str, answer: httpx2.Response) -> bool:
        """Whether it was acknowledged; what is neither that nor a clear 503 is wrong."""
        if answer.is_success:
            return True
        clear = (
            answer.status_code == 503
            and answer.headers["content-type"] == "application/problem+json"
            and answer.headers["retry-after"]
            and "Traceback" not in answer.text
        )
        if not clear:
            self.wrong.append(f"{kind}: {answer.status_code} {answer.text}")
        self.refused[kind] = self.refused.get(kind, 0) + 1
        time.sleep(0.02)
        return False

    def _of_version(self, version: int) -> Any:
        if not self._expected:
            with self.registry.reading() as tx:
                model = tx.models.get(MODEL)
                found = [tx.calibrators.parameters(model, version) for version in (1, 2)]
            self._expected = [recalib.Calibrator.from_bytes(one).predict(_ROWS) for one in found]
        return self._expected[version - 1]

    # What must be true afterwards.

    def _check_uploads(self) -> None:
        for entry in self.uploads:
            with self.registry.reading() as tx:
                found = tx.datasets.find(tx.models.get(MODEL), entry.key)
            if found is not None:
                assert found.digest == entry.content
                self.registry.blobs.verify(found.digest)
            assert found is not None or not entry.acknowledged, f"{entry.key} is lost"

    def _check_promotions(self) -> None:
        with self.registry.reading() as tx:
            model = tx.models.get(MODEL)
            history = tx.aliases.history(model, "champion", 100_000)[::-1]
            assert tx.aliases.get(model, "champion").version == history[-1].to_version
        ours = [(one.reason, one.to_version) for one in history if one.reason.startswith("reason")]
        kept = {reason for reason, _ in ours}
        # In their order, each once.
        assert ours == [(one.key, one.content) for one in self.promotions if one.key in kept]
        at = 1
        for entry in self.promotions:
            # One that points where the alias points already is a success without an entry.
            lost = entry.acknowledged and entry.key not in kept and entry.content != at
            assert not lost, f"{entry.key} is lost"
            at = entry.content if entry.key in kept else at

    def _check_labels(self, server: Server) -> None:
        for entry in self.labels:
            counts = server.ask("POST", f"{_PATH}/labels", json=entry.content)["counts"]
            whole = {counts["accepted"], counts["duplicate"]} == {0, len(entry.content)}
            assert whole, f"half a batch: {counts}"
            assert counts["duplicate"] or not entry.acknowledged, "labels are lost"
            entry.acknowledged = True

    def _check_fits(self, server: Server) -> None:
        for entry in self.fits:
            body = {"dataset": "validation", "promote": False}
            again = server.ask(
                "POST", f"{_PATH}/calibrators", json=body, headers={"Idempotency-Key": entry.key}
            )
            assert entry.content in (None, again["id"])
            entry.content, entry.acknowledged = again["id"], True


@contextlib.contextmanager
def begun(database_url: str, programs: Programs) -> Iterator[Ledger]:
    """Give the empty ledger of a registry with versions 1 and 2, for servers on that home."""
    programs.home.mkdir(exist_ok=True)
    blobs = (programs.home / "blobs").as_uri()
    with contextlib.closing(Registry(database_url, blobs)) as registry:
        registry.migrate()
        publish_two(registry)
        yield Ledger(registry)


def publish_two(registry: Registry) -> None:
    """Make the model, data to fit on, and versions 1 and 2 with 1 as champion: no worker needed."""
    logits, labels = draw(300, _CLASSES, 3.0)
    body = npz(logits, labels)
    with registry.blobs.writer() as blob:
        blob.write(body)
        digest = blob.commit()
    with registry.transaction() as tx:
        model = tx.models.create(MODEL, None, _CLASSES, "anna")
        tx.datasets.create(
            model, "validation", digest, 300, _CLASSES, len(body), NPZ["Content-Type"], "logits", {}
        )
    for map in ("temperature", "vector"):
        fitted = recalib.fit(logits, labels, map=map)
        with registry.transaction() as tx:
            tx.jobs.enqueue("fit", {}, model=model)
            lease = tx.jobs.claim("test", ["fit"], 60)
            assert lease is not None
            alias = "champion" if map == "temperature" else None
            card, data = fitted.card.to_dict(), fitted.to_bytes()
            tx.calibrators.publish(lease, model, "validation", card, data, alias, "first")
            tx.jobs.succeed(lease, {})


def _acknowledged(entries: list[Entry]) -> int:
    return sum(one.acknowledged for one in entries)
