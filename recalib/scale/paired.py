"""Metrics of two calibrators on the same rows of many files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from recalib.calibrator import Calibrator
from recalib.core.arrays import log_probabilities
from recalib.core.executors import Workers
from recalib.files import Input, LabelledData
from recalib.files.fragments import Fragment
from recalib.metrics import Predictions
from recalib.metrics.streaming_changes import PairedMetrics, StreamingChanges
from recalib.scale.evaluate import labelled_chunks

#: Two calibrators; None: without one.
Pair = tuple[Calibrator | None, Calibrator | None]

#: A task returns some 50 MB, so workers merge the states of its fragments. The number of tasks does
#: not depend on the number of workers, because the order of sums would.
_MAX_TASKS = 32


def paired_metrics(
    workers: Workers, fragments: list[Fragment], kind: Input, pair: Pair, *, level: float = 0.95
) -> PairedMetrics:
    """Return metrics and changes from the first calibrator to the second, on all rows.

    Parameters
    ----------
    kind: what the files hold.
    level: confidence of the intervals.
    """
    numbered = list(enumerate(fragments))
    length = -(-len(fragments) // _MAX_TASKS)
    tasks = [numbered[first : first + length] for first in range(0, len(numbered), length)]
    parts = workers.map(partial(_pair_fragments, kind, pair), tasks)
    return reduce(StreamingChanges.merge, parts).finish(level)


def _pair_fragments(
    kind: Input, pair: Pair, tasks: Sequence[tuple[int, Fragment]]
) -> StreamingChanges:
    """Return the merged states of some fragments."""
    return reduce(StreamingChanges.merge, (_pair_fragment(kind, pair, task) for task in tasks))


def _pair_fragment(kind: Input, pair: Pair, task: tuple[int, Fragment]) -> StreamingChanges:
    seed, fragment = task
    with fragment.open(kind) as file:
        total = StreamingChanges(file.classes, seed)
        for values, labels, _ in labelled_chunks(file):
            data = LabelledData(values, labels)
            total.add(*(_predictions(calibrator, data, kind) for calibrator in pair))
    return total


def _predictions(calibrator: Calibrator | None, data: LabelledData, kind: Input) -> Predictions:
    if calibrator is not None:
        answer = calibrator.predict(data.logits, input=kind)
        return Predictions.from_probabilities(answer, data.labels)
    z = data.logits if kind == "logits" else log_probabilities(data.logits)
    return Predictions.from_logits(z, data.labels)
