"""Report on maps that are compared on many files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.card import PredictionPolicy
from recalib.core.executors import Cluster, Workers, open_workers
from recalib.files import Input, LabelledData
from recalib.files.fragments import (
    Fragment,
    Source,
    list_fragments,
    none_if_empty,
    source_name,
    source_names,
)
from recalib.fitting.row_digests import Digests, are_distinct, row_digests
from recalib.reporting.html_report import Report
from recalib.reporting.html_report import Source as PageSource
from recalib.reporting.html_report.accuracy_cost import accuracy_cost, best_maps
from recalib.reporting.html_report.findings import Measurements, RowCounts
from recalib.reporting.html_report.page import (
    LEVEL,
    UNSHIFTED,
    create_page,
    predictions_of,
)
from recalib.reporting.html_report.shift import UnderShift
from recalib.scale.compare import compare
from recalib.scale.evaluate import evaluate_all, labelled_chunks
from recalib.scale.paired import paired_metrics
from recalib.scale.rows import FragmentRows
from recalib.stats.groups import group_counts

#: Rows of a source whose digests are compared with those of another; of more rows, a share.
_MAX_DIGESTS = 1_000_000


def report(
    validation: Source,
    test: Source,
    pairs: Sequence[tuple[str, str]],
    *,
    input: Input = "logits",
    predictions: PredictionPolicy = "may_change",
    shifted: Mapping[str, Source] | None = None,
    title: str = "Calibration report",
    cluster: Cluster = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Fit, compare, measure and draw; the result has the page.

    Figures are of all rows, from merged sums. Pictures are of an evenly spaced sample of the test
    rows; the page says so. Rows that both sources have are counted exactly up to a million rows,
    and estimated from a share of the rows otherwise.

    Parameters
    ----------
    validation, test: as in `recalib.files.fragments.list_fragments`; every file has labels.
    shifted: further test sets by name, in order of increasing distance from validation.
    cluster: as in `recalib.core.executors`; None: this process.
    pairs, input, predictions, progress: as in `compare`.
    title: the title of the page.

    Raises
    ------
    InputError, UnavailableError: as `compare`.

    Examples
    --------
    >>> page = recalib.scale.report("val.npz", "test.npz", [("temperature", "nll")])
    >>> page.save("report.html")
    """
    with open_workers(cluster) as workers:
        comparison = compare(
            validation,
            test,
            pairs,
            input=input,
            predictions=predictions,
            level=LEVEL,
            cluster=workers,
            progress=progress,
        )
        progress("measuring")
        calibrator = comparison.recommended
        test_rows = FragmentRows(workers, list_fragments(test), input)
        survey = test_rows.survey()
        paired = partial(paired_metrics, workers, test_rows.fragments, input)
        metrics = paired((None, calibrator))
        maps = best_maps(comparison) if metrics.changes else None
        sets = {UNSHIFTED: test} | dict(shifted or {})
        shift = _measure_shift(workers, sets, calibrator, input) if shifted else []
        rows = max(calibrator.card.data.rows, survey.rows)
        share = -(-rows // _MAX_DIGESTS)
        contents = {
            name: _content(workers, source, input, share)
            for name, source in {"validation": validation, **sets}.items()
        }
        first, second = contents["validation"], contents[UNSHIFTED]
        same = np.isin(second.digests, first.digests) & are_distinct(second.digests)
        shared = int(np.count_nonzero(same))
        measured = Measurements(
            comparison,
            first.rows,
            second.rows,
            shared=shared * share,
            before=metrics.before,
            after=metrics.after,
            changes=metrics.changes,
            changed=metrics.moved,
            cost=None if maps is None else accuracy_cost(maps, paired(maps)),
            shift=shift,
        )
        scores = survey.logits if input == "logits" else np.exp(survey.logits)
        return create_page(
            measured,
            first.source,
            second.source,
            predictions_of(calibrator, LabelledData(scores, survey.labels), input),
            input=input,
            class_names=None,
            shifted={name: contents[name].source for name in shifted or {}},
            title=title,
            progress=progress,
        )


@dataclass(frozen=True)
class _Content:
    """What the rows of a source are."""

    source: PageSource
    rows: RowCounts
    #: Of the share of rows whose digest is a multiple of a number.
    digests: Digests


def _content(workers: Workers, source: Source, kind: Input, share: int) -> _Content:
    work = partial(none_if_empty, partial(_read, kind, share))
    # An earlier pass over the source has found rows.
    parts = [part for part in workers.map(work, list_fragments(source)) if part is not None]
    counts = np.sum([part[0] for part in parts], axis=0)
    digest = hashlib.sha256("".join(part[3] for part in parts).encode()).hexdigest()
    no_rows = LabelledData(np.empty((0, len(counts)), parts[0][4]), np.empty(0, np.int64))
    return _Content(
        PageSource(
            source_name(source),
            digest,
            no_rows,
            all_counts=counts,
            locations=source_names(source),
        ),
        RowCounts(counts, sum(part[1] for part in parts)),
        np.concatenate([part[2] for part in parts]),
    )


def _read(
    kind: Input, share: int, fragment: Fragment
) -> tuple[NDArray[np.int64], int, Digests, str, np.dtype[Any]]:
    """Return label counts, correct rows, some digests, the digest of all rows, and the dtype."""
    correct = 0
    digests: list[Digests] = []
    content = hashlib.sha256()
    with fragment.open(kind) as file:
        counts = np.zeros(file.classes, np.int64)
        for logits, labels, _ in labelled_chunks(file):
            counts += group_counts(labels, file.classes)
            correct += int((logits.argmax(axis=1) == labels).sum())
            part = row_digests(logits)
            content.update(part.tobytes() + labels.tobytes())
            digests.append(part[part % share == 0])
        return counts, correct, np.concatenate(digests), content.hexdigest(), file.dtype


def _measure_shift(
    workers: Workers, sets: Mapping[str, Source], calibrator: Calibrator, input: Input
) -> list[UnderShift]:
    measured = []
    for name, source in sets.items():
        before, after = evaluate_all(source, [None, calibrator], input=input, cluster=workers)
        measured.append(UnderShift(name, before.rows, before.finish(LEVEL), after.finish(LEVEL)))
    return measured
