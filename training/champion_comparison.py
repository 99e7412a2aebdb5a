"""Compare a new version with the champion, on rows that neither was fitted on.

An overfitted champion scores well on its own rows, and a data set that grows contains them. The
digests of rows show which rows of a data set the champion has seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.card import Card, Selection
from recalib.errors import CorruptError, NotFoundError, TooLargeError
from recalib.fitting.cross_validation import Candidate, Refit, compare_by_cross_validation
from recalib.fitting.request import candidate_of
from recalib.fitting.row_digests import Digests, are_distinct, decode_digests
from recalib.registry import Dataset, ExpectedVersion, Model, Registry
from training.dataset_rows import DatasetRows, read_rows
from training.job_context import JobContext
from training.large_datasets import IN_MEMORY, ClusterPolicy, open_large
from training.promotion_history import earlier_gains, is_same_configuration

log = logging.getLogger(__name__)

_CHAMPION = "champion"
_ADVICE = "upload more new rows, or promote it with `promote: true`"
#: Unseen rows that suffice for a comparison if the champion cannot be refitted.
MIN_UNSEEN = 100


@dataclass(frozen=True, eq=False)
class Champion:
    """The version that serves, and the rows that it was fitted on."""

    expected: ExpectedVersion
    #: The time at which it became the champion.
    since: float = 0.0
    #: None if there is no champion, or if it is damaged.
    calibrator: Calibrator | None = None
    #: None if it was fitted on sampled logits.
    dataset: Dataset | None = None
    #: Of its rows; None if they were not recorded.
    digests: Digests | None = None


@dataclass(frozen=True, eq=False)
class _Plan:
    """How to compare: the reference, the compared rows (N,), and a remark on both."""

    reference: Candidate | Refit | Calibrator
    rows: NDArray[np.bool_] | None = None
    remark: str = ""


@dataclass(frozen=True, eq=False)
class _OwnRows:
    """Rows that the champion was fitted on."""

    #: All, or a sample of a large data set.
    rows: DatasetRows
    #: (N,): which of the compared rows the champion was fitted on.
    contained: NDArray[np.bool_]


def find_champion(registry: Registry, model: Model) -> Champion:
    """Return the champion of a model, with the record of its rows."""
    with registry.reading() as tx:
        alias = tx.aliases.find(model, _CHAMPION)
        if alias is None:
            return Champion(ExpectedVersion(None))
        parameters = tx.calibrators.parameters(model, alias.version)
        name = tx.calibrators.get(model, alias.version).dataset
        dataset = None if name is None else tx.datasets.get(model, name)
        stored = tx.calibrators.row_digests(model, alias.version)
    expected = ExpectedVersion(alias.version)
    try:
        calibrator = Calibrator.from_bytes(parameters)
    except CorruptError as error:
        # A damaged champion must not block its successors.
        fields = {"action": "champion_damaged", "model": model.name}
        log.warning("The champion is damaged and not compared: %s", error, extra=fields)
        return Champion(expected, alias.changed_at)
    digests = None if stored is None else decode_digests(stored)
    return Champion(expected, alias.changed_at, calibrator, dataset, digests)


def compare_with_champion(
    context: JobContext,
    model: Model,
    calibrator: Calibrator,
    champion: Champion,
    rows: DatasetRows,
    progress: Callable[[int, int], None],
    policy: ClusterPolicy = IN_MEMORY,
) -> Selection:
    """Return whether a calibrator that was fitted on `rows` is better than the champion.

    Both are compared on rows that neither has seen: a row's score is under a fit without it. The
    first of these that is possible applies:

    - At least half of the rows are unseen by the champion: they are compared, with the champion
      as it is.
    - The champion's rows are known and readable: all rows are compared, and the champion is
      refitted to its own rows in the same folds.
    - At least 100 rows are unseen: they are compared.
    - The champion's rows are not recorded, and it was fitted on no more rows than there are here:
      all rows are compared, and the champion is refitted to them.

    Otherwise there is no comparison, and the calibrator is not better. Without a champion, the
    reference is `identity`.

    Parameters
    ----------
    progress: called with the number of finished folds and the number of folds.
    policy: a champion's data set that is large is read in parts, and a sample of it is refitted.
    """
    candidate = candidate_of(calibrator.card)
    if champion.calibrator is None:
        identity = msgspec.structs.replace(
            calibrator.card, map="identity", objective="nll", options={}, objective_options={}
        )
        plan: _Plan | str = _Plan(candidate_of(identity))
    else:
        plan = _plan(context, model, champion, champion.calibrator, rows, policy)
    if isinstance(plan, str):
        reference = champion.calibrator.card.map if champion.calibrator else "identity"
        return Selection(
            folds=0, nll=0.0, reference=reference, reference_nll=0.0, standard_error=0.0,
            better=False, rows=0,
            reason=f"{candidate.name} cannot be compared with {reference}: {plan}",
        )  # fmt: skip
    version = None if champion.calibrator is None else champion.expected.version
    earlier = []
    # The digests of a sample do not show which rows of an earlier version are among all rows.
    if rows.all_counts is None:
        with context.registry.reading() as tx:
            earlier = earlier_gains(
                tx, model, calibrator.card, rows.digests, version, champion.since
            )
    selection = compare_by_cross_validation(
        candidate,
        plan.reference,
        rows.logits,
        rows.labels,
        rows=plan.rows,
        earlier=earlier,
        growth=_growth(calibrator.card, plan.reference),
        progress=progress,
    )
    return msgspec.structs.replace(
        selection, reason=f"{selection.reason}{plan.remark}", reference_version=version
    )


def _growth(card: Card, reference: Candidate | Refit | Calibrator) -> float | None:
    """Return the ratio of rows if the reference is a champion as it is, of the same options."""
    if isinstance(reference, Calibrator) and is_same_configuration(card, reference.card):
        return card.data.rows / reference.card.data.rows
    return None


def _plan(
    context: JobContext,
    model: Model,
    champion: Champion,
    calibrator: Calibrator,
    rows: DatasetRows,
    policy: ClusterPolicy,
) -> _Plan | str:
    """Return how to compare with a champion, or why it is impossible."""
    name, total = f"version {champion.expected.version}", len(rows.labels)
    champion_rows, digests = None, champion.digests
    if digests is None:
        champion_rows = _own_rows(context, model, champion, rows, policy)
        if champion_rows is None:
            return _plan_without_digests(name, calibrator, rows)
        digests, seen = champion_rows.rows.digests, champion_rows.contained
    else:
        seen = np.isin(rows.digests, digests) & are_distinct(rows.digests)
    unseen = total - int(np.count_nonzero(seen))
    if unseen == total:
        return _Plan(calibrator)
    on_unseen = f"; on the {unseen:,} of {total:,} rows that {name} was not fitted on"
    if 2 * unseen >= total:
        return _Plan(calibrator, ~seen, on_unseen)
    candidate, refit = candidate_of(calibrator.card), None
    if np.isin(digests, rows.digests).all():
        refit = Refit(candidate, rows.logits[seen], rows.labels[seen], np.flatnonzero(seen))
    else:
        if champion_rows is None:
            champion_rows = _own_rows(context, model, champion, rows, policy)
        if champion_rows is not None:
            positions = _positions(champion_rows.rows.digests, rows.digests)
            refit = Refit(
                candidate, champion_rows.rows.logits, champion_rows.rows.labels, positions
            )
    if refit is not None:
        remark = f"; {name} was fitted on {total - unseen:,} of the {total:,} rows"
        return _Plan(refit, None, f"{remark}, so both are fitted without the rows of each fold")
    if unseen >= MIN_UNSEEN:
        return _Plan(calibrator, ~seen, on_unseen)
    return (
        f"{name} was fitted on other rows, which cannot be read, and on all but {unseen:,} of "
        f"these {total:,}; {_ADVICE}"
    )


def _plan_without_digests(name: str, calibrator: Calibrator, rows: DatasetRows) -> _Plan | str:
    """Return how to compare with a champion whose rows are not recorded and cannot be read."""
    total, before = len(rows.labels), calibrator.card.data.rows
    if total < before:
        return (
            f"the {before:,} rows of {name} are not recorded, so these {total:,} may be among "
            f"them; {_ADVICE}"
        )
    remark = f"; the rows of {name} are not recorded, so both are fitted to these rows in folds"
    return _Plan(candidate_of(calibrator.card), None, remark)


def _own_rows(
    context: JobContext,
    model: Model,
    champion: Champion,
    rows: DatasetRows,
    policy: ClusterPolicy,
) -> _OwnRows | None:
    """Return the rows that the champion was fitted on, or None if they cannot be read."""
    dataset = champion.dataset
    if dataset is None:
        return None
    if dataset.name == rows.dataset.name:
        return _OwnRows(rows, np.ones(len(rows.labels), bool))
    try:
        if policy.is_large(model, dataset):
            with open_large(context, model, dataset, policy) as large:
                champion_rows, contained = large.sample(), large.contains(rows.digests)
        else:
            champion_rows = read_rows(context.registry, model, dataset)
            contained = np.isin(rows.digests, champion_rows.digests)
        return _OwnRows(champion_rows, contained & are_distinct(rows.digests))
    except (CorruptError, NotFoundError, TooLargeError) as error:
        fields = {"action": "champion_rows_unreadable", "model": model.name}
        log.warning("The data of the champion cannot be read: %s", error, extra=fields)
        return None


def rows_of_champion(
    context: JobContext, model: Model, champion: Champion, rows: DatasetRows, policy: ClusterPolicy
) -> NDArray[np.bool_] | None:
    """Return which rows (N,) the champion was fitted on; None if that is not known."""
    if champion.digests is not None:
        return np.isin(rows.digests, champion.digests) & are_distinct(rows.digests)
    champion_rows = _own_rows(context, model, champion, rows, policy)
    return None if champion_rows is None else champion_rows.contained


def _positions(digests: Digests, of_rows: Digests) -> NDArray[np.intp]:
    """Return the index of each digest in `of_rows`, −1 if it is not there."""
    order = np.argsort(of_rows, kind="stable")
    places = order[np.minimum(np.searchsorted(of_rows, digests, sorter=order), len(order) - 1)]
    return np.where(of_rows[places] == digests, places, -1)
