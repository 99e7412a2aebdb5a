"""From calibrated probabilities to the bytes of an answer, in each form that a client may accept.

A new form is one function and its line in `ENCODERS`. It returns the body in two parts, the second
as it lies in memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.lib import format as npy

from recalib.lazy_import import LazyModule
from recalib.prediction_ids import ID_LENGTH
from service.calibration import CalibrationResult
from service.predict.request_formats import ARROW, JSON, NPY, NPZ
from service.predict.top_k import top_classes

__all__ = ["ENCODERS", "IDS_BY_DEFAULT", "WITH_IDS", "WITH_TOP", "EncodedBody"]

pa = LazyModule("pyarrow")

EncodedBody = tuple[bytes, bytes | memoryview]


def _served_by(result: CalibrationResult) -> dict[str, Any]:
    return {"version": result.loaded.version, "map": result.loaded.calibrator.card.map}


def to_json(result: CalibrationResult) -> EncodedBody:
    """Return JSON, each number with as many digits as float32 has."""
    if result.top_k is None:
        found: dict[str, Any] = {"probabilities": result.probabilities}
    else:
        classes, probabilities = top_classes(result.probabilities, result.top_k)
        found = {"top_k": {"classes": classes, "probabilities": probabilities}}
        labels = result.loaded.labels
        if labels is not None:
            found["top_k"]["labels"] = labels[classes].tolist()
    if result.ids is not None:
        found["prediction_ids"] = result.ids
    found["calibrator"] = _served_by(result)
    return orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY), b""


def to_npy(result: CalibrationResult) -> EncodedBody:
    """Return the probabilities as a .npy file."""
    flat = np.ascontiguousarray(result.probabilities, "<f4")
    return _npy_header(flat.shape), flat.data.cast("B")


def to_arrow(result: CalibrationResult) -> EncodedBody:
    """Return an Arrow stream of one batch; its schema's metadata names the calibrator.

    The column `probabilities` holds lists of K, or with `top_k` lists of the likeliest, beside
    their `classes`; `prediction_ids` is a column of text, null where there is none.
    """
    if result.top_k is None:
        columns = {"probabilities": result.probabilities}
    else:
        classes, likeliest = top_classes(result.probabilities, result.top_k)
        columns = {"classes": classes.astype(np.int32), "probabilities": likeliest}
    lists = [
        pa.FixedSizeListArray.from_arrays(pa.array(one.reshape(-1)), one.shape[1])
        for one in columns.values()
    ]
    names = list(columns)
    if result.ids is not None:
        lists.append(pa.array(result.ids, pa.string()))
        names.append("prediction_ids")
    metadata = {"calibrator": orjson.dumps(_served_by(result))}
    batch = pa.record_batch(lists, names=names).replace_schema_metadata(metadata)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue().to_pybytes(), b""


def to_npz(result: CalibrationResult) -> EncodedBody:
    """Return a .npz file of `probabilities` and, where ids are wanted, `prediction_ids`.

    Ids are ASCII of a fixed length, empty where a row has none.
    """
    arrays: dict[str, Any] = {"probabilities": np.asarray(result.probabilities, "<f4")}
    if result.ids is not None:
        arrays["prediction_ids"] = np.array([one or "" for one in result.ids], f"S{ID_LENGTH}")
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue(), b""


#: Media types of answers; the first is what who asks for none gets.
ENCODERS: dict[str, Callable[[CalibrationResult], EncodedBody]] = {
    JSON: to_json,
    NPY: to_npy,
    ARROW: to_arrow,
    NPZ: to_npz,
}
#: Those that can hold the likeliest classes: a .npy file is one array.
WITH_TOP = (JSON, ARROW)
#: Those that can hold prediction ids, and those that do where nothing is said of them.
WITH_IDS, IDS_BY_DEFAULT = (JSON, ARROW, NPZ), (JSON, NPZ)


@lru_cache(maxsize=64)
def _npy_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, header)
    return file.getvalue()
