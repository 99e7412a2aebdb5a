"""The calibrators that this process has loaded, by alias and version.

A request reads one dictionary entry and uses that version to its end; a promotion replaces the
entry between two requests. Promotions by other processes are detected by the registry's revision
number, read every `refresh_seconds`. If the registry is unreachable, loaded calibrators go on
serving.

No lock is held while the registry is read or a calibrator is prepared. Instead, each entry has the
revision of the change that set it, and an older revision never replaces a newer one.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator, identity_calibrator
from recalib.core.arrays import Floats
from recalib.core.decoding import convert
from recalib.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    RecalibError,
    UnavailableError,
)
from recalib.registry import Alias, CalibratorVersion, Model, Registry
from recalib.shift import ShadowState, adapt
from service.metrics import CALIBRATED_ROWS
from service.serving.clock_cache import ClockCache
from service.serving.negative_cache import NegativeCache
from service.serving.traffic import Stream, Traffic
from service.single_flight import SingleFlight

log = logging.getLogger(__name__)

#: The default alias of requests.
CHAMPION = "champion"
#: The mark of answers, metrics and log lines of models without a champion.
UNCALIBRATED = "uncalibrated"
#: Concurrent loads: a slow one must not block all others.
_MAX_CONCURRENT_LOADS = 8
#: Memory of a loaded calibrator besides parameters and labels: session, card and objects.
_OVERHEAD_BYTES = 128 * 1024


class ServedState(NamedTuple):
    """A state of the adaptation to label shift, ready to run."""

    number: int
    #: Returns the answers (N, K) to answers before any adaptation.
    answer: Callable[[Floats], Floats]


@dataclass(eq=False, slots=True)
class LoadedCalibrator:
    """A version of a calibrator, ready to run."""

    model: str
    #: Id of the model in the registry.
    number: int
    #: 0 for the probabilities of a classifier without a champion.
    version: int
    calibrator: Calibrator
    #: Counts rows; bound to its metric labels, since looking them up costs as much as a softmax.
    count: Callable[[float], None]
    #: Class labels, text (K,); None if the model has none.
    labels: NDArray[Any] | None
    #: Bytes of memory.
    size: int
    #: Histogram of served confidences.
    stream: Stream
    #: The aliases and versions, as text, under which it serves.
    selectors: set[str] = field(default_factory=set)
    #: Whether a request has used it since the last eviction pass.
    used: bool = False
    #: What adapts its answers to label shift; None without.
    adaptation: ServedState | None = None
    #: Offsets (1, 1 + K) by the value of the segment; empty for a version without segments.
    offsets: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def is_uncalibrated(self) -> bool:
        """Whether it is the identity of a model without a champion, which is not monitored."""
        return not self.version

    def run(
        self,
        logits: Floats,
        segment: int = 0,
        adaptation: ServedState | None = None,
        offsets: str = "",
    ) -> Floats:
        """Return probabilities, float32 (N, K), for checked logits of a segment of the model.

        Parameters
        ----------
        segment: its number in the settings of the model.
        offsets: the segment that the version has offsets for; "" for none.
        """
        probabilities = self.calibrator.predict_float32(logits, self.offsets.get(offsets))
        if adaptation is not None:
            probabilities = adaptation.answer(probabilities)
        self.count(len(logits))
        self.stream.sample(logits)
        # Multilabel rows are counted with their ids.
        if self.version and not self.calibrator.is_multilabel:
            self.stream.add(probabilities, segment)
        return probabilities


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A calibrator from the registry, with revisions."""

    loaded: LoadedCalibrator
    #: Of the change that set the alias; 0 for a version.
    revision: int
    #: The newest of the registry at the time of the lookup.
    newest_revision: int


class LoadedCalibrators:
    """Loaded calibrators by model and alias or version; safe to use from several threads.

    Parameters
    ----------
    max_bytes: memory of all loaded calibrators. The least recently used are evicted first; a
        calibrator larger than this is kept alone.
    patience_seconds: how long a request should wait for a calibrator to load.
    traffic: counts the served predictions.
    """

    def __init__(
        self,
        registry: Registry,
        max_bytes: int,
        patience_seconds: float,
        traffic: Traffic | None = None,
    ) -> None:
        self._registry = registry
        self.traffic = traffic or Traffic()
        self.patience_seconds = patience_seconds
        #: Read by requests; the key is (model, alias or version as text).
        self._current: dict[tuple[str, str], LoadedCalibrator] = {}
        #: Of the aliases among them: the revision of the change that set each.
        self._revisions: dict[tuple[str, str], int] = {}
        #: By id and name of the model, and version: a name may go to another model, and change.
        self._versions: ClockCache[tuple[int, str, int], LoadedCalibrator] = ClockCache(max_bytes)
        self._missing = NegativeCache()
        self._single_flight: SingleFlight[LoadedCalibrator] = SingleFlight(_MAX_CONCURRENT_LOADS)
        self._revision = -1
        #: Guards all of the above; held for microseconds.
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()

    def __len__(self) -> int:
        return len(self._current)

    @property
    def size(self) -> int:
        """Bytes of all loaded calibrators."""
        return self._versions.size

    def get(self, model: str, selector: str = CHAMPION) -> LoadedCalibrator | None:
        """Return the loaded calibrator of `selector`, or None."""
        loaded = self._current.get((model, selector))
        if loaded is not None:
            loaded.used = True
        return loaded

    def load(self, model: str, selector: str = CHAMPION) -> LoadedCalibrator:
        """Return the calibrator of `selector`; load it from the registry if necessary.

        Raises
        ------
        NotFoundError: no such model, alias or version.
        ConflictError: the model has no champion, and does not serve uncalibrated.
        UnavailableError: it is not loaded, and the registry cannot be reached.
        CorruptError: its stored parameters are damaged.
        """
        return self.submit_load(model, selector).result()

    def submit_load(self, model: str, selector: str = CHAMPION) -> Future[LoadedCalibrator]:
        """Start `load` on a thread and return its future; concurrent calls share one load."""
        self._missing.raise_if_fresh(model, selector)
        return self._single_flight.submit((model, selector), partial(self._load, model, selector))

    def load_champions(self, limit: int, seconds: float) -> int:
        """Load the champions that were promoted last; return their number.

        A champion that cannot be loaded is skipped: its requests get the error.

        Parameters
        ----------
        limit: maximum number; fewer if they are too large for the cache.
        seconds: after this time, no further champion is loaded.
        """
        deadline = time.monotonic() + seconds
        loaded = 0
        try:
            with self._registry.reading() as tx:
                names = tx.aliases.newest_champions(limit)
            for name in names:
                if time.monotonic() > deadline:
                    break
                with contextlib.suppress(NotFoundError, ConflictError, CorruptError):
                    self.load(name)
                    loaded += 1
                if len(self._versions) < loaded:
                    break  # the cache is full: the next would displace a newer champion
        except UnavailableError as error:
            fields = {"action": "champions_not_loaded"}
            log.warning("Champions are loaded when they are used: %s", error, extra=fields)
        return loaded

    def last_not_found(self, model: str, selector: str = CHAMPION) -> NotFoundError | None:
        """Return the registry's last answer if it was "not found", however old; else None."""
        error = self._missing.get(model, selector)
        return error if isinstance(error, NotFoundError) else None

    def refresh(self) -> bool:
        """Apply promotions and adaptations to label shift; return whether the registry answered."""
        with self._refreshing:
            try:
                self._apply_promotions()
                self._apply_adaptations()
            except UnavailableError as error:
                log.warning(
                    "The registry cannot be reached; serving what is loaded: %s",
                    error,
                    extra={"action": "registry_unreachable"},
                )
                return False
        return True

    def wait(self, seconds: float) -> None:
        """Wait until nothing is being loaded, so that the registry can be closed."""
        self._single_flight.wait(seconds)

    def _load(self, model: str, selector: str) -> LoadedCalibrator:
        is_retry = False
        while True:
            try:
                lookup = self._look_up(model, selector)
            except (NotFoundError, ConflictError) as error:
                self._missing.put(model, selector, error)
                raise
            with self._lock:
                # A refresh may have read a newer revision in the meantime, and skipped this alias
                # or deleted version because it was not in use yet: then look it up again.
                if lookup.newest_revision >= self._revision:
                    if self._revision < 0:
                        self._revision = lookup.newest_revision
                    return self._store(lookup, selector)
            if is_retry:  # revisions went back: the database has been replaced
                self.refresh()
            is_retry = True

    def _look_up(self, model: str, selector: str) -> _Lookup:
        with self._registry.reading() as tx:
            row = tx.calibrators.serving(model, _parse_selector(selector))
            is_served = selector == CHAMPION and row.model.serve_uncalibrated
            if row.version is None and not is_served:
                raise _not_found(model, selector, tx.calibrators.latest(row.model))
        version = row.version or 0
        loaded = self._versions.get((row.model.id, row.model.name, version))
        if loaded is None:
            loaded = _prepare(self.traffic, row.model, version, row.parameters)
        return _Lookup(loaded, row.revision, row.newest_revision)

    def _apply_promotions(self) -> None:
        """Point every alias in use to the version that the registry has now; drop deletions."""
        with self._registry.reading() as tx:
            revision = tx.aliases.revision()
            if self._revision == revision:
                return
            if self._revision == -1:
                # Nothing is loaded yet; the first load sets the revision.
                self._missing.clear()
                return
            # A lower revision means another database, for example a restored backup.
            since = self._revision if revision > self._revision else -1
            changed = tx.aliases.changed_since(since)
            deleted = tx.aliases.buried_since(since)
        targets = {(alias.model, alias.alias): alias for alias in changed}
        self._missing.clear()
        prepared: dict[tuple[str, str], LoadedCalibrator | None] = {}
        while True:
            with self._lock:
                # This includes aliases that came into use during the preparation.
                missing = [key for key in targets if key in self._current and key not in prepared]
                if not missing:
                    for model, selector in deleted:
                        self._drop(model, selector)
                    self._swap(targets, prepared, is_rollback=since < 0)
                    self._revision = revision
                    return
            for key in missing:
                prepared[key] = self._load_target(targets[key])

    def _apply_adaptations(self) -> None:
        """Give loaded champions the newest states of their adaptations to label shift."""
        with self._registry.reading() as tx:
            serving = tx.adaptations.serving()
        with self._lock:
            loaded = set(self._current.values())
        for calibrator in loaded:
            key = calibrator.number, calibrator.version
            if key in serving or calibrator.adaptation is not None:
                calibrator.adaptation = self._state_of(calibrator, key, serving.get(key))

    def _state_of(
        self, loaded: LoadedCalibrator, key: tuple[int, int], number: int | None
    ) -> ServedState | None:
        if number is None or (loaded.adaptation and loaded.adaptation.number == number):
            return loaded.adaptation if number else None
        with self._registry.reading() as tx:
            stored = tx.adaptations.states(*key, [number]).get(number)
        try:
            state = convert(stored, ShadowState)
        except msgspec.ValidationError as error:  # or erased meanwhile; other models go on
            text = "Model %s is not adapted to label shift: its state %d cannot be read: %s"
            fields = {"action": "adaptation_unreadable", "model": loaded.model}
            log.error(text, loaded.model, number, error, extra=fields)
            return None
        # Once for all requests: a tuple of 1,000 weights becomes an array in 40 us.
        weights = np.array(state.weights, np.float32)
        return ServedState(number, partial(adapt, weights=weights, applied=state.applied))

    def _swap(
        self,
        targets: dict[tuple[str, str], Alias],
        prepared: dict[tuple[str, str], LoadedCalibrator | None],
        *,
        is_rollback: bool,
    ) -> None:
        for (model, alias), loaded in prepared.items():
            revision = targets[model, alias].revision
            newer = is_rollback or revision > self._revisions.get((model, alias), -1)
            if loaded is not None and newer and (model, alias) in self._current:
                self._store(_Lookup(loaded, revision, revision), alias)

    def _load_target(self, target: Alias) -> LoadedCalibrator | None:
        """Return the calibrator that an alias now names, or None if it cannot be loaded."""
        current = self._current.get((target.model, target.alias))
        if current is not None:
            # If another model has the name now, a deletion drops the entry, and with it this one.
            loaded = self._versions.get((current.number, target.model, target.version))
            if loaded is not None:
                return loaded
        try:
            with self._registry.reading() as tx:
                owner = tx.models.get(target.model)
                data = tx.calibrators.parameters(owner, target.version)
            return _prepare(self.traffic, owner, target.version, data)
        except UnavailableError:
            raise
        except RecalibError as error:
            # The previous version goes on serving.
            log.error(
                "A promoted calibrator cannot be loaded; the one before goes on serving: %s",
                error,
                extra={"action": "promotion_not_loaded", "model": target.model},
            )
            return None

    def _drop(self, model: str, selector: str | None) -> None:
        """Stop to serve a model, or one of its aliases or versions; the caller holds the lock."""
        for key in [key for key in self._current if key[0] == model]:
            if selector is None or key[1] == selector:
                self._current.pop(key).selectors.discard(key[1])
                self._revisions.pop(key, None)

    def _store(self, lookup: _Lookup, selector: str) -> LoadedCalibrator:
        """Serve a calibrator under `selector`; the caller holds the lock."""
        model = lookup.loaded.model
        # Two threads may have prepared the same version; the first one stays.
        key = (lookup.loaded.number, model, lookup.loaded.version)
        loaded = self._versions.put(key, lookup.loaded)
        loaded.selectors.add(selector)
        previous = self._current.get((model, selector))
        if previous is not None and previous is not loaded:
            previous.selectors.discard(selector)
        self._current[model, selector] = loaded
        if lookup.revision:
            self._revisions[model, selector] = lookup.revision
        for evicted in self._versions.shrink(keep=loaded):
            for name in evicted.selectors:
                del self._current[evicted.model, name]
                self._revisions.pop((evicted.model, name), None)
            evicted.selectors.clear()  # a concurrent load may store this object again
        return loaded


def warm_up() -> None:
    """Import what the first calibrator needs; it takes longer than loading a thousand of them."""
    importlib.import_module("recalib.ops.onnx_ops")
    importlib.import_module("recalib.calibrator.ort")


def _parse_selector(selector: str) -> str | int:
    """Return an alias as text or a version as int; "²" is a digit for `isdigit` only."""
    if not (selector.isascii() and selector.isdigit() and selector[0] != "0"):
        return selector
    if len(selector) > 9:  # beyond the range of the database column
        raise NotFoundError("version", selector[:40])
    return int(selector)


def _not_found(model: str, selector: str, latest: CalibratorVersion | None) -> RecalibError:
    """Return the error for a model that has no calibrator under `selector`.

    Parameters
    ----------
    latest: the newest version, which was not promoted if the model has no champion.
    """
    if isinstance(_parse_selector(selector), int):
        return NotFoundError("version", selector, hint=f"{model} has no such version")
    if selector != CHAMPION:
        return NotFoundError("alias", selector)
    fit = f"POST /v1/models/{model}/calibrators"
    if latest is None:
        return ConflictError(f"model {model!r} has no champion: fit a calibrator ({fit})")
    number, selection = latest.version, latest.card.get("selection")
    reason = f" ({selection['reason']})" if selection else ""
    return ConflictError(
        f"model {model!r} has no champion: version {number} was not promoted{reason}. Promote it "
        f'(PUT /v1/models/{model}/aliases/{CHAMPION} {{"version": {number}}}), fit another map '
        f"({fit}), or name a version with ?calibrator={number}"
    )


def check_calibrated(loaded: LoadedCalibrator) -> None:
    """Raise `ConflictError` if a model without a champion is asked for what needs a version."""
    if loaded.is_uncalibrated:
        raise _not_found(loaded.model, CHAMPION, None)


def _prepare(traffic: Traffic, model: Model, version: int, data: bytes | None) -> LoadedCalibrator:
    """Return a version, or the identity without parameters."""
    if data is None:
        calibrator = identity_calibrator(model.classes, model.labels, model.task)
        text = "Model %s has no champion; its answers are uncalibrated."
        log.info(text, model.name, extra={"action": UNCALIBRATED, "model": model.name})
    else:
        calibrator = Calibrator.from_bytes(data)
    calibrator.configure_session(threads=1)
    labels = calibrator.card.labels
    return LoadedCalibrator(
        model.name,
        model.id,
        version,
        calibrator,
        CALIBRATED_ROWS.labels(model.name, str(version) if version else UNCALIBRATED).inc,
        None if labels is None else np.array(labels, object),
        _size(calibrator),
        traffic.stream(model, version, calibrator.card),
        offsets=calibrator.offsets_by_value(),
    )


def _size(calibrator: Calibrator) -> int:
    """Return an estimate of a calibrator's memory in bytes.

    The parameters count twice: in float64, and in float32 in the session, both as stored and as
    laid out for the processor. Labels count twice as well, and the rest is constant.
    """
    parameters = sum(array.nbytes for array in calibrator.parameters.values())
    labels = sum(64 + 4 * len(label) for label in calibrator.card.labels or ())
    return _OVERHEAD_BYTES + 2 * parameters + 2 * labels
