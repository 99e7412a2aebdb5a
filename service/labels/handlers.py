"""Operations on late labels, independent of the transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from recalib.contract.labels import LabelOutcome, LabelStatus
from recalib.core.group_numbers import group_number
from recalib.core.prediction_ids import Prediction, Refusal, read_ids
from recalib.errors import TooLargeError
from recalib.registry import Model, Registry, Transaction
from service.labels.schemas import LateLabel, RowLabel
from service.metrics import LABELS
from service.serving.logit_sampling import is_captured
from service.state import State

#: The possible outcomes of a label.
STATUSES: tuple[LabelStatus, ...] = ("accepted", "duplicate", "conflict", "expired", "invalid")
_ACCEPTED, _DUPLICATE = LabelOutcome("accepted"), LabelOutcome("duplicate")
#: The stored label of a multilabel row that does not have the drawn label.
_ABSENT = -1


def add_labels(state: State, model: str, labels: Sequence[LateLabel]) -> list[LabelOutcome]:
    """Store labels of predictions; return their outcomes, in the same order.

    A rejected label does not affect the others. One transaction stores all accepted labels before
    this returns. Idempotent: a repeat of the batch changes nothing.

    Raises
    ------
    NotFoundError: the model does not exist.
    TooLargeError: more labels than the setting `max_labels`.
    """
    registry, max_labels = state.registry, state.settings.max_labels
    lifetime_seconds = state.settings.label_lifetime_seconds
    if len(labels) > max_labels:
        raise TooLargeError("body", found=f"{len(labels)} labels", accepted=f"at most {max_labels}")
    with registry.reading() as tx:
        owner = tx.models.get(model)
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
    predictions = [
        replace(prediction, group=group_number(label.group))
        if label.group and isinstance(prediction, Prediction)
        else prediction
        for prediction, label in zip(predictions, labels, strict=True)
    ]
    read_label = label_reader(owner)
    checked = [
        _check(prediction, label.label, read_label, deleted)
        for label, prediction in zip(labels, predictions, strict=True)
    ]
    given = [label.label for label in labels]
    outcomes, _ = store_labels(registry, owner, given, checked, partial(_count_late, model=owner))
    return outcomes


def store_labels(
    registry: Registry,
    model: Model,
    labels: Sequence[RowLabel],
    results: Sequence[tuple[Prediction, int] | LabelOutcome],
    write: Callable[[Transaction, list[Prediction]], None],
) -> tuple[list[LabelOutcome], set[int]]:
    """Store the labels of valid rows and count all outcomes; return them, and which rows are new.

    Parameters
    ----------
    results: prediction and stored label of each row, or why it is rejected.
    write: is called with the transaction and the predictions of the new rows.
    """
    valid = [row for row, result in enumerate(results) if not isinstance(result, LabelOutcome)]
    labelled = [result for result in results if not isinstance(result, LabelOutcome)]
    sets = label_sets(model, labels, results)
    before: dict[int, int | None] = {}
    # The transaction blocks other writers, so it only writes rows.
    if labelled:
        with registry.transaction() as tx:
            before = dict(zip(valid, tx.labels.add(model, labelled, sets), strict=True))
            stored = zip(labelled, before.values(), strict=True)
            write(tx, [prediction for (prediction, _), label in stored if label is None])
    outcomes = [
        result if isinstance(result, LabelOutcome) else outcome_of(model, result[1], before[row])
        for row, result in enumerate(results)
    ]
    # For Prometheus, zeros too: a new counter shows no increase.
    for status, count in counts_of(outcomes).items():
        LABELS.labels(model.name, status).inc(count)
    return outcomes, {row for row, label in before.items() if label is None}


def counts_of(outcomes: Sequence[LabelOutcome]) -> dict[LabelStatus, int]:
    """Return the number of labels by status."""
    counts = Counter(outcome.status for outcome in outcomes)
    return {status: counts[status] for status in STATUSES}


def _count_late(tx: Transaction, new: list[Prediction], *, model: Model) -> None:
    """Count the labels of cohorts that monitoring has read, which it does once."""
    read_until = tx.monitors.through(model, {prediction.version for prediction in new})
    late = Counter(
        prediction.version
        for prediction in new
        if prediction.made_at < read_until.get(prediction.version, 0.0)
    )
    for version, labels in sorted(late.items()):  # in one order: transactions do not deadlock
        tx.monitors.count_late(model, version, labels)


def _check(
    prediction: Prediction | Refusal,
    label: RowLabel,
    read_label: Callable[[RowLabel, int], int | str],
    deleted: Collection[int],
) -> tuple[Prediction, int] | LabelOutcome:
    if isinstance(prediction, Refusal):
        return LabelOutcome(prediction.status, prediction.reason)
    if prediction.version in deleted:
        return LabelOutcome("invalid", f"version {prediction.version} was deleted")
    known = read_label(label, prediction.predicted)
    return LabelOutcome("invalid", known) if isinstance(known, str) else (prediction, known)


def outcome_of(model: Model, label: int, before: int | None) -> LabelOutcome:
    """Return the outcome of a label, given the label stored before it, or None."""
    if before is None:
        return _ACCEPTED
    if before == label:
        return _DUPLICATE
    if model.is_multilabel:
        return LabelOutcome("conflict", "the row had other labels before; the first ones are kept")
    name = str(before) if model.labels is None else repr(model.labels[before])
    return LabelOutcome("conflict", f"labelled {name[:80]} before; the first label is kept")


def label_reader(model: Model) -> Callable[[RowLabel, int], int | str]:
    """Return a function from a row's label and its predicted class to the label to store.

    The stored label is the index of the class. Of a multilabel row, whose predicted class is the
    drawn label, it is this label if the row has it, otherwise `_ABSENT`. Of a label that is not
    valid, the function returns the reason as text.
    """
    class_of = _class_reader(model)
    if model.is_multilabel:
        return lambda label, drawn: _drawn_label(class_of, label, drawn, model.classes)
    return lambda label, _: _single_label(class_of, label)


def _single_label(class_of: Callable[[int | str], int | str], label: RowLabel) -> int | str:
    if isinstance(label, list):
        return "found a list of labels, but the model is multiclass"
    return class_of(label)


def _drawn_label(
    class_of: Callable[[int | str], int | str], label: RowLabel, drawn: int, classes: int
) -> int | str:
    if not isinstance(label, list):
        return f"found {label!r:.80}, but the model is multilabel: send a list of the row's labels"
    if len(label) > classes:
        return f"found {len(label)} labels, but the model has {classes}"
    present = [class_of(name) for name in label]
    for index in present:
        if isinstance(index, str):
            return index
    if len(set(present)) < len(present):
        return "found a label twice: send a list of the labels that the row has, not zeros and ones"
    return drawn if drawn in present else _ABSENT


def label_sets(
    model: Model,
    labels: Sequence[RowLabel],
    results: Sequence[tuple[Prediction, int] | LabelOutcome],
) -> dict[bytes, bytes]:
    """Return the bits of all labels of the captured rows of a multilabel model, by digest.

    The first ones of a repeated row count. Only refits use them, and only with the logits.
    """
    if not model.is_multilabel:
        return {}
    class_of = _class_reader(model)
    sets: dict[bytes, bytes] = {}
    for label, result in zip(labels, results, strict=True):
        if isinstance(result, LabelOutcome) or not isinstance(label, list):
            continue
        if not is_captured(result[0].digest, model.monitoring.capture):
            continue
        present = np.zeros(model.classes, bool)
        present[[int(class_of(name)) for name in label]] = True
        sets.setdefault(result[0].digest, np.packbits(present).tobytes())
    return sets


def _class_reader(model: Model) -> Callable[[int | str], int | str]:
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
