"""Operations on late labels, independent of the transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from recalib.errors import TooLargeError
from recalib.prediction_ids import Prediction, Refusal, read_ids
from recalib.registry import Model, Registry
from service.labels.schemas import LateLabel, Outcome, Status
from service.metrics import LABELS

__all__ = ["STATUSES", "add_labels", "class_reader", "counts_of", "note_labels", "outcome_of"]

#: The possible outcomes of a label.
STATUSES: tuple[Status, ...] = ("accepted", "duplicate", "conflict", "expired", "invalid")
_ACCEPTED, _DUPLICATE = Outcome("accepted"), Outcome("duplicate")


def add_labels(
    registry: Registry,
    model: str,
    labels: Sequence[LateLabel],
    *,
    max_labels: int,
    lifetime_seconds: float,
) -> list[Outcome]:
    """Store labels of predictions; return their outcomes, in the same order.

    A rejected label does not affect the others. One transaction stores all accepted labels before
    this returns. Idempotent: a repeat of the batch changes nothing.

    Parameters
    ----------
    max_labels: maximum number of labels in a batch.
    lifetime_seconds: maximum age of a prediction.

    Raises
    ------
    NotFoundError: the model does not exist.
    InputError: the model is multilabel.
    TooLargeError: more than `max_labels` labels.
    """
    if len(labels) > max_labels:
        raise TooLargeError("body", found=f"{len(labels)} labels", accepted=f"at most {max_labels}")
    with registry.reading() as tx:
        owner = tx.models.get(model)
        owner.check_multiclass("labels of predictions; `observations` takes rows with their labels")
        keys, now = tx.signing_keys.all(), tx.clock()
        deleted = tx.calibrators.deleted(owner)
    predictions = read_ids(
        [label.prediction_id for label in labels],
        keys,
        model=owner.id,
        now=now,
        # A label that retention has deleted would be accepted again.
        lifetime_seconds=min(lifetime_seconds, owner.retention.label_seconds or lifetime_seconds),
    )
    class_of = class_reader(owner)
    checked = [
        _check(prediction, class_of(label.label), deleted)
        for label, prediction in zip(labels, predictions, strict=True)
    ]
    # The transaction blocks other writers, so it only writes rows.
    valid = [result for result in checked if not isinstance(result, Outcome)]
    existing = iter(_store(registry, owner, valid))
    outcomes = [
        result if isinstance(result, Outcome) else outcome_of(owner, result[1], next(existing))
        for result in checked
    ]
    note_labels(owner, outcomes)
    return outcomes


def note_labels(model: Model, outcomes: Sequence[Outcome]) -> None:
    """Count outcomes for Prometheus, zeros too: a new counter shows no increase."""
    for status, count in counts_of(outcomes).items():
        LABELS.labels(model.name, status).inc(count)


def counts_of(outcomes: Sequence[Outcome]) -> dict[Status, int]:
    """Return the number of labels by status."""
    counts = Counter(outcome.status for outcome in outcomes)
    return {status: counts[status] for status in STATUSES}


def _store(
    registry: Registry, model: Model, labelled: list[tuple[Prediction, int]]
) -> list[int | None]:
    if not labelled:
        return []
    with registry.transaction() as tx:
        existing = tx.labels.add(model, labelled)
        new = [
            prediction
            for (prediction, _), before in zip(labelled, existing, strict=True)
            if before is None
        ]
        # Monitoring reads each cohort once: labels of cohorts that it has read are late.
        read_until = tx.monitors.through(model, {prediction.version for prediction in new})
        late = Counter(
            prediction.version
            for prediction in new
            if prediction.made_at < read_until.get(prediction.version, 0.0)
        )
        for version, labels in sorted(
            late.items()
        ):  # in one order, so that transactions do not deadlock
            tx.monitors.count_late(model, version, labels)
        return existing


def _check(
    prediction: Prediction | Refusal, label: int | str, deleted: Collection[int]
) -> tuple[Prediction, int] | Outcome:
    if isinstance(prediction, Refusal):
        return Outcome(prediction.status, prediction.reason)
    if prediction.version in deleted:
        return Outcome("invalid", f"version {prediction.version} was deleted")
    return Outcome("invalid", label) if isinstance(label, str) else (prediction, label)


def outcome_of(model: Model, label: int, before: int | None) -> Outcome:
    """Return the outcome of a label, given the label stored before it, or None."""
    if before is None:
        return _ACCEPTED
    if before == label:
        return _DUPLICATE
    name = str(before) if model.labels is None else repr(model.labels[before])
    return Outcome("conflict", f"labelled {name[:80]} before; the first label is kept")


def class_reader(model: Model) -> Callable[[int | str], int | str]:
    """Return a function from a label to its class index, or to a message if it has none."""
    classes = f"the model's classes are 0 to {model.classes - 1}"
    by_label: dict[str, int] = {}

    def class_of(label: int | str) -> int | str:
        if isinstance(label, int):
            return label if 0 <= label < model.classes else f"label {label}: {classes}"
        if model.labels is None:
            return f"label {label!r:.80}: {classes}, without names"
        if not by_label:  # built on first use: there may be a million
            by_label.update({name: index for index, name in enumerate(model.labels)})
        return by_label.get(label, f"label {label!r:.80}: none of the model's class labels")

    return class_of
