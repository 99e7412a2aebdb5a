"""Encoding of calibrate responses: JSON, .npy, Arrow and .npz.

A new format is a function and its line in `ENCODERS`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.lib import format as npy
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.core.prediction_ids import ID_LENGTH
from service.calibration import CalibrationResult
from service.predict.request_formats import ARROW, JSON, NPY, NPZ
from service.predict.top_k import top_classes
from service.serving.json_pieces import fragment
from service.serving.loaded_calibrators import UNCALIBRATED

pa = LazyModule("pyarrow")


def _served_by(result: CalibrationResult) -> dict[str, Any]:
    loaded, map = result.loaded, result.loaded.calibrator.card.map
    if loaded.is_uncalibrated:
        return {"version": None, "map": map, UNCALIBRATED: True}
    served_by = {"version": loaded.version, "map": map}
    if result.adaptation is not None:
        served_by["adaptation"] = result.adaptation
    return served_by


def to_json(result: CalibrationResult) -> bytes:
    """Return JSON; each number has the digits of a float32."""
    if result.top_k is None:
        document: dict[str, Any] = {"probabilities": fragment(result.probabilities)}
    else:
        classes, probabilities = top_classes(result.probabilities, result.top_k)
        top = {"classes": fragment(classes), "probabilities": fragment(probabilities)}
        labels = result.loaded.labels
        if labels is not None:
            top["labels"] = fragment(classes, lambda part: labels[part].tolist())
        document = {"top_k": top}
    if result.sets is not None:
        document["sets"] = set_classes(result.sets)
    if result.intervals is not None:
        document["intervals"] = result.intervals
    if result.accepted is not None:
        document["accepted"] = result.accepted
    if result.ids is not None:
        document["prediction_ids"] = result.ids
    document["calibrator"] = _served_by(result)
    if result.warning:
        document["warnings"] = [result.warning]
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def set_classes(sets: NDArray[np.bool_]) -> list[list[int]]:
    """Return the numbers of the classes of each set."""
    classes, ends = np.nonzero(sets)[1].tolist(), np.cumsum(sets.sum(axis=1)).tolist()
    return [classes[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def to_npy(result: CalibrationResult) -> bytes:
    """Return the probabilities as a .npy file."""
    flat = np.ascontiguousarray(result.probabilities, "<f4")
    return b"".join((_npy_header(flat.shape), flat.data))


def to_arrow(result: CalibrationResult) -> bytes:
    """Return an Arrow stream of one batch; its schema's metadata names the calibrator.

    The column `probabilities` holds lists of K numbers. With `top_k`, it holds those of the most
    likely classes, and the column `classes` their numbers. `sets` is a column of lists of numbers
    of classes, `intervals` one of lists of pairs, `accepted` one of truth values. `prediction_ids`
    is a column of text, null for rows without an id.
    """
    if result.top_k is None:
        columns = {"probabilities": result.probabilities}
    else:
        classes, likeliest = top_classes(result.probabilities, result.top_k)
        columns = {"classes": classes.astype(np.int32), "probabilities": likeliest}
    lists = [
        pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        for values in columns.values()
    ]
    names = list(columns)
    if result.sets is not None:
        offsets = np.concatenate([[0], np.cumsum(result.sets.sum(axis=1))]).astype(np.int32)
        numbers = pa.array(np.nonzero(result.sets)[1].astype(np.int32))
        lists.append(pa.ListArray.from_arrays(pa.array(offsets), numbers))
        names.append("sets")
    if result.intervals is not None:
        pairs = pa.FixedSizeListArray.from_arrays(pa.array(result.intervals.reshape(-1)), 2)
        lists.append(pa.FixedSizeListArray.from_arrays(pairs, result.intervals.shape[1]))
        names.append("intervals")
    if result.accepted is not None:
        lists.append(pa.array(result.accepted))
        names.append("accepted")
    if result.ids is not None:
        lists.append(pa.array(result.ids, pa.string()))
        names.append("prediction_ids")
    metadata = {"calibrator": orjson.dumps(_served_by(result))}
    batch = pa.record_batch(lists, names=names).replace_schema_metadata(metadata)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue().to_pybytes()


def to_npz(result: CalibrationResult) -> bytes:
    """Return a .npz file of `probabilities` and what else is requested, under its name.

    Ids are ASCII of fixed length, empty for rows without an id.
    """
    arrays: dict[str, Any] = {"probabilities": np.asarray(result.probabilities, "<f4")}
    if result.sets is not None:
        arrays["sets"] = result.sets
    if result.intervals is not None:
        arrays["intervals"] = np.asarray(result.intervals, "<f4")
    if result.accepted is not None:
        arrays["accepted"] = result.accepted
    if result.ids is not None:
        arrays["prediction_ids"] = np.array([id or "" for id in result.ids], f"S{ID_LENGTH}")
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


#: Encoders by media type; the first is the default.
ENCODERS: dict[str, Callable[[CalibrationResult], bytes]] = {
    JSON: to_json,
    NPY: to_npy,
    ARROW: to_arrow,
    NPZ: to_npz,
}
#: Media types that support `top_k`; a .npy file holds a single array.
WITH_TOP = (JSON, ARROW)
#: Media types that support prediction sets, intervals and `accepted`.
WITH_SETS = (JSON, ARROW, NPZ)
#: Media types that support prediction ids, and those that have them by default.
WITH_IDS, IDS_BY_DEFAULT = (JSON, ARROW, NPZ), (JSON, NPZ)


@lru_cache(maxsize=64)
def _npy_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, header)
    return file.getvalue()
