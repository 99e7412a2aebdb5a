"""Read and check the files of a log on workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from recalib.core.executors import Workers
from recalib.errors import InputError
from recalib.files.fragments import Fragment
from recalib.replay.log import Log
from recalib.replay.survey import Survey


def survey_on_workers(
    log: Log, workers: Workers, step: Callable[[int], object] = lambda rows: None
) -> Survey:
    """Return what `Log.survey` returns, bit by bit, for any number of workers.

    Each file is a task.

    Parameters
    ----------
    step: called with the number of rows read, after each file.

    Raises
    ------
    InputError: a row is not valid, or a file has another number of probabilities than the first.
    UnavailableError: the workers end.
    """
    files = log.files
    if not files:
        return log.survey(step)  # raises the error
    kind = {
        "with_labels": log.with_labels,
        "multilabel": log.multilabel,
        "class_names": log.class_names,
    }
    work = partial(_survey, log.classes, log.split_columns, kind)
    parts: list[Survey] = []
    rows = 0
    results = workers.map(work, files, batch=workers.batch(len(files)))
    for file, (survey, classes) in zip(files, results, strict=True):
        if log.classes is None:
            log.classes = classes
        elif classes != log.classes:
            raise InputError(
                f"{file.name}: probabilities",
                found=f"{classes} numbers",
                accepted=f"{log.classes}, as in {files[0].name}",
            )
        parts.append(survey)
        rows += survey.rows
        step(rows)
    return Survey.of(parts)


def _survey(
    classes: int | None, split_columns: Sequence[str], kind: dict[str, Any], file: Fragment
) -> tuple[Survey, int | None]:
    with Log([file], classes, split_columns, **kind) as log:
        return log.survey(), log.classes
