"""Calibrators that this process has loaded, and which of them each alias means right now.

A request reads one dictionary entry, so that it sees one version from beginning to end. The
entries are replaced whole: a promotion swaps what an alias means between two requests. A promotion
made by another process is noticed by its audit number, looked up every `refresh_seconds`. When the
registry cannot be reached, what is loaded goes on serving.

No lock is held while the registry is read or a calibrator is prepared. What keeps two such readers
apart is the audit number: each entry has that of the change that it stems from, and an older one
never replaces a newer one.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.calibrator import Calibrator
from recalib.errors import ConflictError, NotFoundError, RecalibError, UnavailableError
from recalib.registry import Alias, Model, Registry
from service.metrics import CALIBRATED_ROWS
from service.serving.clock_cache import ClockCache
from service.serving.negative_cache import NegativeCache
from service.serving.traffic import Stream, Traffic
from service.single_flight import SingleFlight

__all__ = ["CHAMPION", "LoadedCalibrator", "LoadedCalibrators", "warm_up"]

log = logging.getLogger(__name__)

#: What serves when a request names neither alias nor version.
CHAMPION = "champion"
#: Calibrators loaded at a time: what one that the database is slow about leaves to the others.
_MOST_LOADING = 8
#: What a session takes besides parameters, with the card and what Python keeps.
_OVERHEAD_BYTES = 128 * 1024


@dataclass(eq=False, slots=True)
class LoadedCalibrator:
    """One version, ready to run."""

    model: str
    #: The model's, in the registry.
    number: int
    version: int
    calibrator: Calibrator
    #: Counts rows; bound to its labels once, since looking them up costs as much as one softmax.
    count: Callable[[float], None]
    #: The classes' labels, text (K,), where the model has some.
    labels: NDArray[Any] | None
    #: Bytes that it keeps.
    size: int
    #: Counts what is answered, by confidence.
    stream: Stream
    #: The aliases and versions as text under which it serves.
    selectors: set[str] = field(default_factory=set)
    #: Whether a request came since something last had to make room.
    used: bool = False

    def run(self, logits: Floats, segment: int = 0) -> Floats:
        """Return probabilities, float32 (N, K), for checked logits of a segment of the model."""
        probabilities = self.calibrator.predict_float32(logits)
        self.count(len(logits))
        self.stream.add(probabilities, segment)
        return probabilities


@dataclass(frozen=True, slots=True)
class _Found:
    """A calibrator, and how new the knowledge is that led to it."""

    loaded: LoadedCalibrator
    #: Of the change that pointed the alias there; 0 for a version, which never changes.
    revision: int
    #: The newest that its reader could see.
    seen: int


class LoadedCalibrators:
    """Loaded calibrators by model and alias or version; safe to use from several threads.

    Parameters
    ----------
    most_bytes: what loaded calibrators may take together. Those not used for longest go first;
        one that is larger by itself is kept alone.
    patience_seconds: how long a request should wait for what is not loaded.
    traffic: what they count their answers in.
    """

    def __init__(
        self,
        registry: Registry,
        most_bytes: int,
        patience_seconds: float,
        traffic: Traffic | None = None,
    ) -> None:
        self._registry = registry
        self.traffic = traffic or Traffic()
        self.patience_seconds = patience_seconds
        #: What requests read: (model, alias or version as text) to what it means.
        self._current: dict[tuple[str, str], LoadedCalibrator] = {}
        #: For the aliases among them, the revision of the change that they stem from.
        self._revisions: dict[tuple[str, str], int] = {}
        self._versions: ClockCache[tuple[str, int], LoadedCalibrator] = ClockCache(most_bytes)
        self._missing = NegativeCache()
        self._single_flight: SingleFlight[LoadedCalibrator] = SingleFlight(_MOST_LOADING)
        self._revision = -1
        #: Guards all of the above, for microseconds.
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()

    def __len__(self) -> int:
        return len(self._current)

    @property
    def size(self) -> int:
        """Bytes that all loaded calibrators keep."""
        return self._versions.size

    def get(self, model: str, selector: str = CHAMPION) -> LoadedCalibrator | None:
        """Return what is loaded under `selector`, or None: then `load` may block."""
        loaded = self._current.get((model, selector))
        if loaded is not None:
            loaded.used = True
        return loaded

    def load(self, model: str, selector: str = CHAMPION) -> LoadedCalibrator:
        """Return the calibrator under `selector`, from the registry where it is not loaded.

        Raises
        ------
        NotFoundError: no such model, alias or version.
        ConflictError: the model has no champion yet.
        UnavailableError: it is not loaded and the registry cannot be reached.
        CorruptError: its stored parameters are damaged.
        """
        return self.submit_load(model, selector).result()

    def submit_load(self, model: str, selector: str = CHAMPION) -> Future[LoadedCalibrator]:
        """Return what `load` will return or raise; whoever asks meanwhile shares it."""
        self._missing.raise_if_fresh(model, selector)
        return self._single_flight.submit((model, selector), partial(self._load, model, selector))

    def last_not_found(self, model: str, selector: str = CHAMPION) -> NotFoundError | None:
        """Return what did not exist when the registry was last asked, however long ago."""
        error = self._missing.get(model, selector)
        return error if isinstance(error, NotFoundError) else None

    def refresh(self) -> bool:
        """Look for promotions since the last look; return whether the registry answered."""
        with self._refreshing:
            try:
                self._follow()
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
        again = False
        while True:
            try:
                found = self._find(model, selector)
            except (NotFoundError, ConflictError) as error:
                self._missing.put(model, selector, error)
                raise
            with self._lock:
                # A refresh may have seen more while this was being prepared, and, not finding
                # the alias in use, have left it alone: then look again.
                if found.revision == 0 or found.seen >= self._revision:
                    if self._revision < 0:
                        self._revision = found.seen
                    return self._keep(found, selector)
            if again:  # what was seen went back for good: another database
                self.refresh()
            again = True

    def _find(self, model: str, selector: str) -> _Found:
        with self._registry.reading() as tx:
            found = tx.calibrators.serving(model, _wanted(selector))
        if found.version is None or found.parameters is None:
            raise _missing(model, selector)
        loaded = self._versions.get((model, found.version))
        if loaded is None:
            loaded = _prepare(self.traffic, found.model, found.version, found.parameters)
        return _Found(loaded, found.revision, found.newest_revision)

    def _follow(self) -> None:
        """Make every alias in use mean what the registry now says."""
        with self._registry.reading() as tx:
            revision = tx.aliases.revision()
            if self._revision == revision:
                return
            if self._revision == -1:
                # Before anything is loaded there is nothing to follow; the first load starts it.
                self._missing.clear()
                return
            # A number that went back is another database: a backup, say.
            since = self._revision if revision > self._revision else -1
            changed = tx.aliases.changed_since(since)
        targets = {(one.model, one.alias): one for one in changed}
        self._missing.clear()
        prepared: dict[tuple[str, str], LoadedCalibrator | None] = {}
        while True:
            with self._lock:
                # Aliases that came into use meanwhile are among them.
                missing = [key for key in targets if key in self._current and key not in prepared]
                if not missing:
                    self._swap(targets, prepared, back=since < 0)
                    self._revision = revision
                    return
            for key in missing:
                prepared[key] = self._promoted(targets[key])

    def _swap(
        self,
        targets: dict[tuple[str, str], Alias],
        prepared: dict[tuple[str, str], LoadedCalibrator | None],
        *,
        back: bool,
    ) -> None:
        for (model, alias), loaded in prepared.items():
            revision = targets[model, alias].revision
            newer = back or revision > self._revisions.get((model, alias), -1)
            if loaded is not None and newer and (model, alias) in self._current:
                self._keep(_Found(loaded, revision, revision), alias)

    def _promoted(self, target: Alias) -> LoadedCalibrator | None:
        """Return the calibrator that an alias now means, or None where it cannot be loaded."""
        loaded = self._versions.get((target.model, target.version))
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
            # Better the version that served until now than none.
            log.error(
                "A promoted calibrator cannot be loaded; the one before goes on serving: %s",
                error,
                extra={"action": "promotion_not_loaded", "model": target.model},
            )
            return None

    def _keep(self, found: _Found, selector: str) -> LoadedCalibrator:
        """Serve it under `selector` from now on; the lock is held."""
        model = found.loaded.model
        # Two may have prepared one version; one of them is enough.
        loaded = self._versions.put((model, found.loaded.version), found.loaded)
        loaded.selectors.add(selector)
        before = self._current.get((model, selector))
        if before is not None and before is not loaded:
            before.selectors.discard(selector)
        self._current[model, selector] = loaded
        if found.revision:
            self._revisions[model, selector] = found.revision
        for dropped in self._versions.shrink(keep=loaded):
            for name in dropped.selectors:
                del self._current[dropped.model, name]
                self._revisions.pop((dropped.model, name), None)
            dropped.selectors.clear()  # a reader may hold it, and bring it back
        return loaded


def warm_up() -> None:
    """Load what preparing the first calibrator loads: it takes longer than a thousand of them."""
    importlib.import_module("recalib.ops.onnx_ops")
    importlib.import_module("recalib.ort")


def _wanted(selector: str) -> str | int:
    """Return an alias or a version; '²' is a digit to Python, and no number to `int`."""
    if not (selector.isascii() and selector.isdigit() and selector[0] != "0"):
        return selector
    if len(selector) > 9:  # more than the database can number
        raise NotFoundError("version", selector[:40])
    return int(selector)


def _missing(model: str, selector: str) -> RecalibError:
    """Return what to raise where a model has nothing under `selector`."""
    if isinstance(_wanted(selector), int):
        return NotFoundError("version", selector, hint=f"{model} has none so numbered")
    if selector != CHAMPION:
        return NotFoundError("alias", selector)
    return ConflictError(
        f"model {model!r} has no champion: fit a calibrator "
        f"(POST /v1/models/{model}/calibrators) and promote it "
        f"(PUT /v1/models/{model}/aliases/{CHAMPION}), or name one with ?calibrator=VERSION"
    )


def _prepare(traffic: Traffic, model: Model, version: int, data: bytes) -> LoadedCalibrator:
    calibrator = Calibrator.from_bytes(data)
    calibrator.configure_session(threads=1)
    labels = calibrator.card.labels
    return LoadedCalibrator(
        model.name,
        model.id,
        version,
        calibrator,
        CALIBRATED_ROWS.labels(model.name, str(version)).inc,
        None if labels is None else np.array(labels, object),
        _size(calibrator),
        traffic.stream(model, version, calibrator.card),
    )


def _size(calibrator: Calibrator) -> int:
    """Return about how many bytes a calibrator keeps.

    Its parameters in float64; in the session, in float32, as they are stored and as they are laid
    out for the processor; labels; and the rest, the same for all.
    """
    parameters = sum(array.nbytes for array in calibrator.parameters.values())
    labels = sum(64 + 4 * len(label) for label in calibrator.card.labels or ())
    return _OVERHEAD_BYTES + 2 * parameters + 2 * labels
