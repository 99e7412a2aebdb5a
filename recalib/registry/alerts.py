"""What an alert needs of the registry: when the drift began, and what an operator does next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recalib.core.card import Rejection
from recalib.errors import InputError, RecalibError
from recalib.registry.aliases import CHAMPION
from recalib.registry.records import Model
from recalib.registry.transaction import Transaction

if TYPE_CHECKING:
    from recalib.contract.alerts import Alert

#: Earlier champions in an alert.
_MAX_VERSIONS = 5


def drift_onset(status: dict[str, Any]) -> float | None:
    """Return the onset if labels show a drift; otherwise the leading bettor has won by chance."""
    if status["state"] not in ("stale", "suspect"):
        return None
    segment = status["segment"]
    evidence = (status if segment is None else status["segments"][segment])["evidence"]
    suspicion = evidence["suspicion"]
    suspected = suspicion is not None and suspicion >= evidence["suspicion_threshold"]
    classes = status.get("classes")
    classes_rejected = classes is not None and classes["rejected"]
    drifts = suspected or classes_rejected or evidence["rejected_at"] is not None
    return status["onset"] if drifts else None


def earlier_champions(tx: Transaction, model: Model, version: int) -> list[int]:
    """Return the versions that were the champion before and exist, the latest first."""
    changes, deleted = tx.aliases.history(model, CHAMPION), tx.calibrators.deleted(model)
    versions = dict.fromkeys(change.to_version for change in changes if change.to_version)
    return [other for other in versions if other != version and other not in deleted][
        :_MAX_VERSIONS
    ]


def failed_refit_text(
    error: RecalibError, model: Model, rows: int, rejection: Rejection | None
) -> str:
    """Return why a refit on `rows` fails, and without a threshold what an operator can do."""
    if rejection is None or not isinstance(error, InputError) or error.field != "max_risk":
        return f"it cannot be fitted: {error}"
    risk = rejection.risk
    return (
        f"half of {rows} labelled predictions makes no threshold of rejection certain to keep the "
        f"risk of {risk:g}, and the champion stays; more labels may, or a version with a larger "
        f"risk: recalib api fit model={model.name} dataset=NAME max_risk:={min(2 * risk, 0.9):g}"
    )


def next_command(tx: Transaction, model: Model, alert: Alert, server: str) -> str:
    """Return the next command of an operator.

    Parameters
    ----------
    server: URL of the server; empty if operators have it in their environment.
    """
    option = f" --server {server}" if server else ""
    candidate = tx.candidates.open(model)
    if candidate is not None and candidate.verdict == "proven":
        return f"recalib promote {model.name} {candidate.version}{option}"
    better = [other for other in alert.versions if other.low > 0]
    if better:
        best = max(better, key=lambda other: other.difference).version
        changes = tx.aliases.history(model, CHAMPION, 1)
        if changes and changes[0].from_version == best:
            return f"recalib rollback {model.name}{option}"
        return f"recalib promote {model.name} {best}{option}"
    # Its reason says what a refit needs; a second one would end as the last one.
    last = next((event.kind for event in tx.monitors.events(model, 1)), None)
    if candidate is not None or model.monitoring.capture == 0 or last == "refit_impossible":
        return f"recalib monitoring {model.name}{option}"
    return f"recalib api refit model={model.name}{option}"
