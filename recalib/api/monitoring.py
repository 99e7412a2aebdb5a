"""The public functions `monitor`, a log in arrays to the states of the monitor, and `timeline`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from recalib.calibrator import Calibrator
from recalib.core.inputs import as_array
from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError
from recalib.files import Task
from recalib.replay import Replay, ReplayOptions, replay

if TYPE_CHECKING:
    from recalib.reporting.plots import Picture

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

#: Rows in a row group of the log: the monitor reads one batch of a group at a time.
_ROW_GROUP = 1 << 17


def monitor(
    confidence: Any = None,
    correct: Any = None,
    time: Any = None,
    *,
    label_time: Any = None,
    segment: Any = None,
    group: Any = None,
    probabilities: Any = None,
    label: Any = None,
    task: Task = "multiclass",
    calibrator: Calibrator | None = None,
    segment_columns: Mapping[str, Any] | None = None,
    **options: Any,
) -> Replay:
    """Run the monitor on a log in arrays, as `recalib replay` does on a file.

    A notebook shows the result as a table. `state` is the last state, `events` has each change with
    its time and reason, and `windows` the evidence after each cohort.

    Parameters
    ----------
    confidence: (N,), the probability of the predicted class; None if there are `probabilities`.
    correct: (N,), whether the prediction was right; None or NaN without a label. None if there are
        `probabilities` and `label`.
    time: (N,), of the prediction: seconds, or dates and times. Rows may have any order.
    label_time: (N,), of the label; by default that of the prediction.
    segment: (N,), names of segments, each with a monitor.
    group: (N,), names of groups of rows that may depend on each other, such as sessions; None or ""
        for a row that does not. A group counts once, in the first cohort that has it. Without
        groups, rows must be independent given their probabilities.
    probabilities: (N, K), for shares of classes and, with `label`, for `classes`. Those of two
        classes, (N, 2), or P(y = 1) alone, (N,) or (N, 1), make P(y = 1) what is monitored, instead
        of the confidence. The confidence hardly shows a shifted base rate.
    label: (N,), index of the true class; None or NaN without a label. Of multilabel rows zeros and
        ones (N, K), NaN in rows whose labels are not known.
    task: `multilabel` if a row has any number of labels. `confidence` and `correct` are then None:
        a row is a prediction of one label, drawn by its time and `probabilities`.
    calibrator: its calibration set is the reference; by default the first predictions are, and also
        if the card has the histogram of something else than is monitored (`target`).
    segment_columns: columns (N,) by name; each value is tried as a segment.
    options: of `recalib.replay.ReplayOptions`: `alpha`, `tolerance`, `objective`, `maturity`,
        `cohort`, `window_labels`, `selection_ratio`, `classes`, `adapt`, ....

    Raises
    ------
    InputError: arrays of different lengths or of other types, an invalid row, or an unknown option.

    Examples
    --------
    >>> time = 60.0 * np.arange(len(new_labels))
    >>> p = calibrator.predict(new_logits)
    >>> result = recalib.monitor(probabilities=p, label=new_labels, time=time)
    >>> result.state
    'unverified'
    """
    if time is None:
        raise InputError("time", found="None", accepted="(N,), of each prediction")
    names = ReplayOptions.__dataclass_fields__
    for name in options:
        if name not in names or name == "find_segments":
            accepted = ", ".join(sorted(set(names) - {"find_segments", "task"}))
            raise InputError("options", found=repr(name), accepted=accepted)
    extra = dict(segment_columns or {})
    arrays = {
        "confidence": confidence,
        "correct": correct,
        "time": time,
        "label_time": label_time,
        "segment": segment,
        "group": group,
        "label": None if task == "multilabel" else label,
        **extra,
    }
    columns = {name: _column(v, name) for name, v in arrays.items() if v is not None}
    if probabilities is not None:
        columns["probabilities"] = _lists(probabilities, "probabilities")
    if task == "multilabel":
        for name in ("confidence", "correct"):
            if name in columns:
                accepted = "None: the task is multilabel, see `probabilities` and `label`"
                raise InputError(name, found=f"{len(columns[name])} values", accepted=accepted)
        if label is not None:
            columns["labels"] = _lists(label, "label")
    rows = len(columns["time"])
    for name, column in columns.items():
        if len(column) != rows:
            raise InputError(name, found=f"{len(column)} rows", accepted=f"{rows}, as in time")
    log = io.BytesIO()
    pq.write_table(pa.table(columns), log, row_group_size=_ROW_GROUP)
    log.seek(0)
    card = None if calibrator is None else calibrator.card
    return replay(log, ReplayOptions(**options, task=task, find_segments=tuple(extra)), card=card)


def timeline(result: Replay, *, title: str = "monitoring") -> Picture:
    """Return a picture of the monitor's states over prediction time.

    Three panels: ECE of the last labels with its 95% interval and the objective, the evidence of
    the test (log E) with its threshold, and the state. Needs `recalib[pictures]`.

    Parameters
    ----------
    result: of `monitor` or `recalib.replay.replay`.
    title: the heading of the picture.

    Raises
    ------
    InputError: no cohort has matured.

    Examples
    --------
    >>> time = 60.0 * np.arange(len(new_labels))
    >>> p = calibrator.predict(new_logits)
    >>> result = recalib.monitor(probabilities=p, label=new_labels, time=time)
    >>> recalib.timeline(result).save("timeline.svg")
    """
    from recalib.reporting import plots

    return plots.Picture(plots.timeline(result.windows, objective=result.objective, heading=title))


def _column(values: Any, name: str) -> Any:
    """Return an Arrow column; NaN is null."""
    if hasattr(values, "to_arrow"):  # polars
        return values.to_arrow()
    if not hasattr(values, "__arrow_array__") and not type(values).__module__.startswith(
        ("pandas", "pyarrow")
    ):
        values = as_array(values, name)
        if values.ndim != 1:
            raise InputError(name, found=f"shape {values.shape}", accepted="(N,)")
        if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] in "YMWDhm":
            values = values.astype("datetime64[s]")  # Arrow has no units above seconds
    try:
        column = pa.array(values, from_pandas=True)
        # NumPy has no integers with NaN.
        is_index = name == "label" and pa.types.is_floating(column.type)
        return column.cast(pa.int64()) if is_index else column
    except pa.ArrowException as error:
        accepted = "values of one type"
        raise InputError(name, found=str(error)[:80], accepted=accepted) from None


def _lists(values: Any, name: str) -> Any:
    """Return an Arrow column of lists; a row of NaN alone is null."""
    matrix = as_array(values, name)
    if matrix.ndim == 1 and name == "probabilities":  # P(y = 1)
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        found = f"shape {matrix.shape} of {matrix.dtype}"
        raise InputError(name, found=found, accepted="(N, K) numbers")
    matrix = np.ascontiguousarray(matrix, np.int8) if matrix.dtype == bool else matrix
    flat = pa.array(np.ascontiguousarray(matrix).ravel())
    is_unknown = np.isnan(matrix).all(axis=1) & (name == "label")
    mask = pa.array(is_unknown) if is_unknown.any() else None
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1], mask=mask)
