"""Rows of many files, read again by workers for each sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import (
    Floats,
    Integers,
    Numbers,
    WeightKind,
    centre_log_odds,
    log_probabilities,
)
from recalib.core.executors import Workers
from recalib.core.masks import LowLogits, Mask, find_mask
from recalib.drift import CalibrationSums
from recalib.drift.reference_histogram import reference_histogram
from recalib.drift.target import monitored_probabilities, pairs_of_rows, target_of
from recalib.errors import EmptyError, InputError
from recalib.files import DataFile, Input
from recalib.files.fragments import Fragment, no_rows, none_if_empty
from recalib.fitting import log_odds
from recalib.fitting.log_odds import Groups, OddsSums, is_accepted
from recalib.fitting.rows import ArrayRows, Block, Kernel, ends_and_spreads, logit_scale
from recalib.fitting.thresholds import positive_counts
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.scale.evaluate import labelled_chunks
from recalib.scale.odds import class_sums, top_label_sums
from recalib.scale.row_sample import RowSample, max_sample_rows, sample_shares
from recalib.scale.sample_weights import WeightedFragment
from recalib.stats.groups import group_counts

R = TypeVar("R")
#: Returns which rows of (n, K) count, (n,).
_Accepts = Callable[[Floats], NDArray[np.bool_]]

#: Bytes of logits that are summed at a time.
_CHUNK_BYTES = 16 << 20
#: Groups of all classes that a pass sums: 25 MB for a fragment.
_MAX_GROUPS = 1 << 20


@dataclass
class RowSurvey:
    """What the first pass finds: counts, the scale of the logits, and a sample of the rows."""

    rows: int
    #: Σw; after `FragmentRows.survey` the effective number of rows.
    weight: float
    #: Σw², before `FragmentRows.survey` scales the weights.
    squares: float
    #: (K,): rows with each label.
    counts: Integers
    #: Σ w (max z − mean z) over rows, without masked classes.
    spread: float
    #: The largest |z| of a class that is not masked, and the rounding error of the dtype.
    largest: float
    epsilon: float
    #: Of all logits, to find masks.
    low: LowLogits
    #: Evenly spaced rows, (n, K) and (n,), and the distance between them.
    logits: Floats
    labels: Integers
    #: (n,); None if all are 1.
    weights: Numbers | None = None
    step: int = 1
    #: The rule of logits that stand for −inf; the rows are read with it.
    mask: Mask | None = None

    @property
    def classes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def sample(self) -> ArrayRows:
        """The sample."""
        return ArrayRows(self.logits, self.labels, self.weights)

    @property
    def scale(self) -> float:
        """The unit of the logits; 0 if those of each row are equal up to rounding."""
        spread = self.spread / self.weight
        if spread <= self.epsilon * self.largest:
            return 0.0
        return logit_scale(self.logits, self.weights, spread)

    @classmethod
    def of(cls, parts: Sequence[RowSurvey], sample: RowSample) -> RowSurvey:
        """Return the survey of the rows of all parts, with their sample as it is."""
        return cls(
            sum(part.rows for part in parts),
            float(np.sum([part.weight for part in parts])),
            float(np.sum([part.squares for part in parts])),
            np.sum([part.counts for part in parts], axis=0),
            float(np.sum([part.spread for part in parts])),
            max(part.largest for part in parts),
            max(part.epsilon for part in parts),
            reduce(LowLogits.merge, (part.low for part in parts)),
            *sample.candidates(),
            sample.step,
        )


@dataclass
class Description:
    """Sums over calibrated rows, for the card."""

    #: Of monitored probabilities and outcomes, see `recalib.drift.target.pairs_of_rows`.
    monitored: CalibrationSums
    #: The metrics before and after the map, if they were requested.
    metrics: dict[str, StreamingEvaluation]
    #: `positive_counts` of two classes; empty for more.
    positives: Numbers

    def merge(self, other: Description) -> Description:
        """Return the sums over the rows of both."""
        metrics = {name: part.merge(other.metrics[name]) for name, part in self.metrics.items()}
        positives = self.positives + other.positives
        return Description(self.monitored.merge(other.monitored), metrics, positives)


class FragmentRows:
    """All rows of some fragments, read again by workers for each sum.

    Parameters
    ----------
    fragments: after `survey`, those without rows are left out.
    kind: what the files hold.
    """

    in_memory = None
    #: After `survey`.
    surveyed: RowSurvey

    def __init__(self, workers: Workers, fragments: list[Fragment], kind: Input) -> None:
        self._accepts: _Accepts | None = None
        self._workers = workers
        self.fragments = fragments
        self.kind: Input = kind
        self._batch = workers.batch(len(fragments))

    def survey(self, weight_kind: WeightKind = "survey") -> RowSurvey:
        """Read all rows once, and again for each constant that stands for −inf.

        Weights are then scaled, here and in each later pass, so that their sum is the effective
        number of rows; see `recalib.core.arrays.check_weights`.

        Raises
        ------
        InputError: a fragment is not valid, or has another number of classes than the first; or
            none has rows, or rows with weight.
        """
        survey = self._read()
        while (mask := find_mask(survey.low)) is not None:
            self.fragments = [replace(fragment, mask=mask) for fragment in self.fragments]
            survey = replace(self._read(), mask=mask)
        if survey.weights is not None:
            factor = _factor(survey) if weight_kind == "survey" else 1.0
            self.fragments = [
                replace(cast(WeightedFragment, fragment), factor=factor)
                for fragment in self.fragments
            ]
            survey.weights = survey.weights * factor
            survey.weight, survey.spread = survey.weight * factor, survey.spread * factor
        self.surveyed = survey
        return survey

    def _read(self) -> RowSurvey:
        """Read all rows once; fragments without rows are left out."""
        parts: list[RowSurvey] = []
        fragments = []
        tasks = zip(sample_shares(self.fragments), self.fragments, strict=True)
        work = partial(none_if_empty, partial(_survey, self.kind))
        surveys = self._workers.map(work, tasks, batch=self._batch)
        for fragment, part in zip(self.fragments, surveys, strict=True):
            if part is None:
                continue
            parts.append(part)
            fragments.append(fragment)
            if part.classes != parts[0].classes:
                raise InputError(
                    f"{fragment.name}: {self.kind}",
                    found=f"{part.classes} classes",
                    accepted=f"{parts[0].classes}, as in {fragments[0].name}",
                )
            if len(parts) == 1:
                sample = RowSample(max_sample_rows(part.classes))
            sample.add(part.logits, part.labels, part.weights, rows=part.rows, step=part.step)
            part.logits, part.labels = part.logits[:0].copy(), part.labels[:0].copy()
            part.weights = None
        if not parts and isinstance(self.fragments[0], WeightedFragment):
            raise InputError("weights", found="zeros only", accepted="at least one positive weight")
        if not parts:
            raise no_rows(self.fragments)
        survey = RowSurvey.of(parts, sample)
        survey.logits, survey.labels, survey.weights = sample.rows()
        self.fragments = fragments
        return survey

    @property
    def shape(self) -> tuple[int, int]:
        return self.surveyed.rows, self.surveyed.classes

    @property
    def weight(self) -> float:
        return self.surveyed.weight

    @property
    def scale(self) -> float:
        return self.surveyed.scale

    @property
    def sample(self) -> ArrayRows:
        return self.surveyed.sample

    @property
    def largest(self) -> float:
        return self.surveyed.largest

    def groups(self, temperature: float, target: str | None = None) -> Groups:
        # The resolution goes with the work: it is that of this process.
        work = partial(top_label_sums, temperature, target, log_odds.OF_TOP_LABEL)
        return self._merged_odds(work)[0].groups()

    def class_groups(self, temperature: float) -> Iterator[Groups]:
        """Yield the groups of each class; a pass computes as many as memory allows."""
        count, classes = self.shape
        resolution = log_odds.OF_CLASSES
        step = max(1, _MAX_GROUPS // min(count, resolution.max_exact))
        for start in range(0, classes, step):
            indices = np.arange(start, min(start + step, classes))
            sums = self._merged_odds(partial(class_sums, temperature, indices, resolution))
            yield from (of_class.groups() for of_class in sums)

    def _merged_odds(self, work: Callable[[Iterator[Block]], list[OddsSums]]) -> list[OddsSums]:
        parts = self._map_blocks(work)
        total = next(parts)
        for part in parts:
            total = [a.merge(b) for a, b in zip(total, part, strict=True)]
        return total

    def accepted(self, temperature: float, threshold: float) -> FragmentRows:
        """Return the accepted rows; their survey has the labels and masks of all.

        A sample without accepted rows is kept: it gives only the start.
        """
        accepted = copy(self)
        accepted._accepts = partial(is_accepted, temperature=temperature, threshold=threshold)
        parts = np.stack([*accepted._map_blocks(_extent)])
        count, weight, spread = parts[:, :3].sum(axis=0).tolist()
        of_sample = self.sample.accepted(temperature, threshold)
        sample = of_sample if len(of_sample.labels) else self.sample
        accepted.surveyed = replace(
            self.surveyed,
            rows=int(count),
            weight=weight,
            spread=spread,
            largest=float(parts[:, 3].max()),
            logits=sample.logits,
            labels=sample.labels,
            weights=sample.weights,
        )
        return accepted

    def describe(self, calibrator: Calibrator, *, measure: bool) -> Description:
        """Return sums over the calibrated rows, in bins at quantiles of the survey's sample.

        Parameters
        ----------
        measure: whether metrics are computed.
        """
        sample = calibrator.predict_float64(self.surveyed.logits)
        monitored = monitored_probabilities(sample, target_of(self.surveyed.classes))
        edges = reference_histogram(monitored).edges
        parts = self.map(partial(_describe, self.kind, calibrator, edges, measure))
        total = next(parts)
        for part in parts:
            total = total.merge(part)
        return total

    def map(self, work: Callable[[Fragment], R]) -> Iterator[R]:
        """Yield a function of each fragment, in their order."""
        return self._workers.map(work, self.fragments, batch=self._batch)

    def _map_blocks(self, work: Callable[[Iterator[Block]], R]) -> Iterator[R]:
        """Yield a function of the blocks of each fragment, in their order."""
        return self.map(partial(_of_blocks, self.kind, self._accepts, work))

    def sum(self, kernel: Kernel, *, whole: bool = False) -> Numbers:
        """Return the sum over fragments of a function of blocks, added in their order."""
        return reduce(np.add, self._map_blocks(partial(_sum_blocks, kernel)))


def _factor(survey: RowSurvey) -> float:
    """Return what weights are multiplied by, so that their sum is Kish's number of rows."""
    if not 0 < survey.squares < np.inf:
        accepted = "numbers whose squares float64 holds"
        raise InputError("weights", found=f"the sum {survey.weight:g}", accepted=accepted)
    return survey.weight / survey.squares


def weighted_sum(values: Floats, weights: Numbers | None) -> float:
    """Return Σ w v, in float64."""
    return float(np.sum(values if weights is None else weights * values, dtype=np.float64))


def iter_chunks(file: DataFile, kind: Input) -> Iterator[Block]:
    """Yield the rows with weight.

    Logits of two classes are as `centre_log_odds` has them.
    """
    for logits, labels, weights in _rows_with_weight(file, kind):
        logits = centre_log_odds(logits) if file.classes == 2 else logits
        yield Block(logits, labels, weights)


def _rows_with_weight(
    file: DataFile, kind: Input
) -> Iterator[tuple[Floats, Integers, Numbers | None]]:
    for values, labels, weights in labelled_chunks(file, _CHUNK_BYTES):
        if weights is not None and not weights.all():
            used = weights > 0
            values, labels, weights = values[used], labels[used], weights[used]
        if len(labels):
            yield (values if kind == "logits" else log_probabilities(values)), labels, weights


def _survey(kind: Input, task: tuple[float, Fragment]) -> RowSurvey:
    share, fragment = task
    with fragment.open(kind) as file:
        sample = RowSample(max_sample_rows(file.classes, share))
        parts: list[RowSurvey] = []
        for z, y, w in _rows_with_weight(file, kind):
            sample.add(z, y, w, rows=len(z))
            lowest, tops, spread = ends_and_spreads(z)
            part = RowSurvey(
                rows=len(z),
                weight=float(len(z)) if w is None else float(w.sum()),
                squares=float(len(z)) if w is None else float(w @ w),
                counts=group_counts(y, file.classes),
                spread=weighted_sum(spread, w),
                largest=max(abs(lowest), abs(float(tops.max()))),
                epsilon=float(np.finfo(z.dtype).eps),
                low=LowLogits.of(z, y),
                logits=z[:0].copy(),  # a view would keep the chunk in memory
                labels=y[:0].copy(),
            )
            parts.append(part)
    if not parts:
        raise EmptyError("weights", found="zeros only", accepted="at least one positive weight")
    return RowSurvey.of(parts, sample)


def _of_blocks(
    kind: Input, accepts: _Accepts | None, work: Callable[[Iterator[Block]], R], fragment: Fragment
) -> R:
    """Return a function of the blocks of a fragment, of accepted rows if not of all."""
    with fragment.open(kind) as file:
        blocks = iter_chunks(file, kind)
        return work(blocks if accepts is None else _accepted(accepts, blocks))


def _accepted(accepts: _Accepts, blocks: Iterator[Block]) -> Iterator[Block]:
    for block in blocks:
        at = accepts(block.logits)
        if at.any():
            weights = None if block.weights is None else block.weights[at]
            yield Block(block.logits[at], block.labels[at], weights)


def _sum_blocks(kernel: Kernel, blocks: Iterator[Block]) -> Numbers:
    return np.asarray(sum(kernel(block) for block in blocks))


def _extent(blocks: Iterator[Block]) -> Numbers:
    """Return N and Σ w of rows, Σ w (max z − mean z), and the largest |z|."""
    count, weight, spread, largest = 0, 0.0, 0.0, 0.0
    for block in blocks:
        lowest, tops, spreads = ends_and_spreads(block.logits)
        count += len(block.labels)
        weight += float(block.counts.sum())
        spread += weighted_sum(spreads, block.weights)
        largest = max(largest, abs(lowest), abs(float(tops.max())))
    return np.array([count, weight, spread, largest])


def _describe(
    kind: Input,
    calibrator: Calibrator,
    edges: tuple[float, ...],
    measure: bool,
    fragment: Fragment,
) -> Description:
    sums = CalibrationSums.empty(edges)
    names = ("before", "after") if measure else ()
    weighted, classes = isinstance(fragment, WeightedFragment), calibrator.card.classes
    metrics = {name: StreamingEvaluation(classes, weighted=weighted) for name in names}
    positives = np.zeros((2, 3) if classes == 2 else 0)
    with fragment.open(kind) as file:
        for z, y, w, _ in iter_chunks(file, kind):
            p: Any = calibrator.predict_float64(z)
            sums.add_labels(*pairs_of_rows(p, y), weights=w)
            if classes == 2:
                positives += positive_counts(calibrator, p[:, 1], y, w)
            if measure:
                metrics["before"].add(y, logits=z, sample_weight=w)
                metrics["after"].add(y, probabilities=p, sample_weight=w)
    return Description(sums, metrics, positives)
