"""Taking labels for predictions made earlier; no transport here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from recalib.errors import TooLargeError
from recalib.prediction_ids import Prediction, Refusal, read_ids
from recalib.registry import Model, Registry
from service.labels.schemas import LateLabel, Outcome, Status
from service.metrics import LABELS

__all__ = ["STATUSES", "add_labels", "class_reader", "counts_of", "note_labels", "outcome_of"]

#: What can become of a label.
STATUSES: tuple[Status, ...] = ("accepted", "duplicate", "conflict", "expired", "invalid")
_ACCEPTED, _DUPLICATE = Outcome("accepted"), Outcome("duplicate")


def add_labels(
    registry: Registry,
    model: str,
    labels: Sequence[LateLabel],
    *,
    most: int,
    lifetime_seconds: float,
) -> list[Outcome]:
    """Keep labels of predictions, in their order; return what became of each.

    One that is refused keeps none of the others back. What is accepted is in the database, in one
    transaction, when this returns; sending the same batch again changes nothing.

    Parameters
    ----------
    most: labels in one batch.
    lifetime_seconds: how old a prediction may be.

    Raises
    ------
    NotFoundError: no such model.
    TooLargeError: more than `most` labels.
    """
    if len(labels) > most:
        raise TooLargeError("body", found=f"{len(labels)} labels", accepted=f"at most {most}")
    with registry.reading() as tx:
        owner = tx.models.get(model)
        keys, now = tx.signing_keys.all(), tx.labels.clock()
    read = read_ids(
        [one.prediction_id for one in labels],
        keys,
        model=owner.id,
        now=now,
        lifetime_seconds=lifetime_seconds,
    )
    class_of = class_reader(owner)
    checked = [
        _checked(prediction, class_of(one.label))
        for one, prediction in zip(labels, read, strict=True)
    ]
    # What takes long is done; the transaction that others wait for has nothing but the rows.
    good = [one for one in checked if not isinstance(one, Outcome)]
    stood = iter(_stored(registry, owner, good))
    outcomes = [
        one if isinstance(one, Outcome) else outcome_of(owner, one[1], next(stood))
        for one in checked
    ]
    note_labels(owner, outcomes)
    return outcomes


def note_labels(model: Model, outcomes: Sequence[Outcome]) -> None:
    """Count outcomes for Prometheus, for which what appears with its first one has not grown."""
    for status, count in counts_of(outcomes).items():
        LABELS.labels(model.name, status).inc(count)


def counts_of(outcomes: Sequence[Outcome]) -> dict[Status, int]:
    """Return how many labels had each status."""
    counted = Counter(one.status for one in outcomes)
    return {status: counted[status] for status in STATUSES}


def _stored(
    registry: Registry, model: Model, labelled: list[tuple[Prediction, int]]
) -> list[int | None]:
    if not labelled:
        return []
    with registry.transaction() as tx:
        stood = tx.labels.add(model, labelled)
        new = [made for (made, _), before in zip(labelled, stood, strict=True) if before is None]
        # Nothing is looked at twice. Those that a look will find late are counted by that look.
        read = tx.monitors.through(model, {made.version for made in new})
        late = Counter(made.version for made in new if made.made_at < read.get(made.version, 0.0))
        for version, labels in sorted(late.items()):  # in one order for all
            tx.monitors.count_late(model, version, labels)
        return stood


def _checked(
    prediction: Prediction | Refusal, label: int | str
) -> tuple[Prediction, int] | Outcome:
    if isinstance(prediction, Refusal):
        return Outcome(prediction.status, prediction.reason)
    return Outcome("invalid", label) if isinstance(label, str) else (prediction, label)


def outcome_of(model: Model, label: int, before: int | None) -> Outcome:
    """Return what became of a label, by the one that stood before it, None where there was none."""
    if before is None:
        return _ACCEPTED
    if before == label:
        return _DUPLICATE
    name = str(before) if model.labels is None else repr(model.labels[before])
    return Outcome("conflict", f"labelled {name[:80]} before, which stands")


def class_reader(model: Model) -> Callable[[int | str], int | str]:
    """Return what finds a label's class, or says in a sentence why there is none."""
    classes = f"the model's classes are 0 to {model.classes - 1}"
    by_label: dict[str, int] = {}

    def class_of(label: int | str) -> int | str:
        if isinstance(label, int):
            return label if 0 <= label < model.classes else f"label {label}: {classes}"
        if model.labels is None:
            return f"label {label!r:.80}: {classes}, without names"
        if not by_label:  # made by the first that needs it: there may be a million
            by_label.update({name: index for index, name in enumerate(model.labels)})
        return by_label.get(label, f"label {label!r:.80}: none of the model's class labels")

    return class_of
