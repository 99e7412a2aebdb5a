"""Calibrators that this process has loaded, and which of them each alias means right now.

A request reads one dictionary entry, so that it sees one version from beginning to end. The
entries are replaced whole: a promotion swaps what an alias means between two requests. A promotion
made by another process is noticed by its audit number, looked up every `refresh_seconds`. When the
registry cannot be reached, what is loaded goes on serving.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recalib.arrays import Floats
from recalib.calibrator import Calibrator
from recalib.errors import ConflictError, NotFoundError, RecalibError, UnavailableError
from recalib.registry import Model, Registry, Transaction
from service.transport.instruments import CALIBRATED_ROWS

__all__ = ["CHAMPION", "Loaded", "LoadedCalibrators"]

log = logging.getLogger(__name__)

#: What serves when a request names neither alias nor version.
CHAMPION = "champion"


@dataclass(frozen=True)
class Loaded:
    """One version, ready to run."""

    model: str
    version: int
    calibrator: Calibrator
    #: Counts rows; bound to its labels once, since looking them up costs as much as one softmax.
    count: Callable[[float], None]

    def run(self, logits: Floats) -> Floats:
        """Return probabilities, float32 (N, K), for checked logits."""
        probabilities = self.calibrator.fast(logits)
        self.count(len(logits))
        return probabilities


class LoadedCalibrators:
    """Loaded calibrators by model and alias or version; safe to use from several threads.

    Parameters
    ----------
    capacity: most versions kept; the one used longest ago goes first.
    """

    def __init__(self, registry: Registry, capacity: int = 1_000) -> None:
        self._registry = registry
        self._capacity = capacity
        self._versions: OrderedDict[tuple[str, int], Loaded] = OrderedDict()
        #: What requests read: (model, alias or version as text) to what it means.
        self._current: dict[tuple[str, str], Loaded] = {}
        self._revision = -1
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._current)

    def get(self, model: str, selector: str = CHAMPION) -> Loaded | None:
        """Return what is loaded under `selector`, or None: then `load` may block."""
        return self._current.get((model, selector))

    def load(self, model: str, selector: str = CHAMPION) -> Loaded:
        """Return the calibrator under `selector`, from the registry where it is not loaded.

        Raises
        ------
        NotFoundError: no such model, alias or version.
        ConflictError: the model has no champion yet.
        UnavailableError: it is not loaded and the registry cannot be reached.
        CorruptError: its stored parameters are damaged.
        """
        with self._lock:
            if self._revision < 0:
                self._revision = self._current_revision()
            return self._load(model, selector)

    def refresh(self) -> bool:
        """Look for promotions since the last look; return whether the registry answered."""
        with self._lock:
            try:
                revision = self._current_revision()
                if revision != self._revision:
                    self._reload()
                    self._revision = revision
            except UnavailableError as error:
                log.warning(
                    "The registry cannot be reached; serving what is loaded: %s",
                    error,
                    extra={"action": "registry_unreachable"},
                )
                return False
        return True

    def _current_revision(self) -> int:
        with self._registry.reading() as tx:
            return tx.aliases.revision()

    def _reload(self) -> None:
        """Make every alias in use mean what the registry now says."""
        for model, selector in list(self._current):
            if _is_version(selector):
                continue
            try:
                self._load(model, selector)
            except UnavailableError:
                raise
            except RecalibError as error:
                # Better the version that served until now than none.
                log.error(
                    "A promoted calibrator cannot be loaded; the one before goes on serving: %s",
                    error,
                    extra={"action": "promotion_not_loaded", "model": model},
                )

    def _load(self, model: str, selector: str) -> Loaded:
        with self._registry.reading() as tx:
            owner = tx.models.get(model)
            version = _resolve(tx, owner, selector)
            loaded = self._versions.get((model, version))
            data = tx.calibrators.parameters(owner, version) if loaded is None else b""
        if loaded is None:
            loaded = _prepare(model, version, data)
        self._keep(loaded, selector)
        return loaded

    def _keep(self, loaded: Loaded, selector: str) -> None:
        self._versions[loaded.model, loaded.version] = loaded
        self._versions.move_to_end((loaded.model, loaded.version))
        self._current[loaded.model, selector] = loaded
        if len(self._versions) > self._capacity:
            _, dropped = self._versions.popitem(last=False)
            kept = {key: one for key, one in self._current.items() if one is not dropped}
            self._current = kept


def _is_version(selector: str) -> bool:
    """Return whether `selector` is a number; '²' is a digit to Python, and no number to `int`."""
    return selector.isascii() and selector.isdigit()


def _resolve(tx: Transaction, model: Model, selector: str) -> int:
    """Return the version that `selector` means."""
    if _is_version(selector):
        return int(selector[:9])
    alias = tx.aliases.find(model, selector)
    if alias is not None:
        return alias.version
    if selector != CHAMPION:
        raise NotFoundError("alias", selector)
    raise ConflictError(
        f"model {model.name!r} has no champion: fit a calibrator "
        f"(POST /v1/models/{model.name}/calibrators) and promote it "
        f"(PUT /v1/models/{model.name}/aliases/{CHAMPION}), or name one with ?calibrator=VERSION"
    )


def _prepare(model: str, version: int, data: bytes) -> Loaded:
    calibrator = Calibrator.from_bytes(data)
    calibrator.start_session(threads=1)
    counter: Any = CALIBRATED_ROWS.labels(model, str(version))
    return Loaded(model, version, calibrator, counter.inc)
