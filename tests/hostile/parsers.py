"""The parsers of untrusted bytes, with valid seeds.

A parser takes bytes, and returns or raises a `RecalibError`; anything else is a defect. Both
the tests here and `python -m tests.hostile.fuzz` use this table, so a parser that is
added to it is covered by both.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy

from recalib import Calibrator
from recalib.core.arrays import check_logits
from recalib.core.card import Card, DataSummary, FitSummary
from recalib.core.options import configure
from recalib.core.prediction_ids import BatchSummary, SigningKey, mint, read_ids
from recalib.errors import InputError, RecalibError
from recalib.files import FORMATS, read
from recalib.files.json import decode_document
from recalib.maps import MAPS
from recalib.recipe import read_recipe
from service.calibrators.parameter_file import check_parameter_file
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from service.http import bodies
from service.http import content_negotiation as negotiation
from service.inference import compression, tensors
from service.inference import rpc as inference_rpc
from service.labels import rest as labels
from service.pagination import decode_cursor
from service.predict import request_formats as parsing
from service.predict import rest as predict
from service.predict import rpc as predict_rpc
from service.serving import ids
from tests.files.examples import (
    WRITERS,
    example,
    list_table,
    stream_of,
    write_parquet,
    write_parquet_columns,
)
from tests.hostile.in_child import call_in_child, read_chunks, read_log
from tests.service.conftest import npy

__all__ = ["PARSERS", "Parser", "refusal"]

_LOGITS, _LABELS = example(5)
_KEY = SigningKey(1, bytes(range(32)))
_NOW = 1_800_000_000.0
#: Limit of a request body, in bytes.
_MAX_BODY_BYTES = 1 << 20
#: Largest number of classes of a hostile card for which a batch is calibrated.
_FEW_CLASSES = 1000


@dataclass(frozen=True)
class Parser:
    """A parser with its seeds; it must survive all mutations of them."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def refusal(read: Callable[[bytes], object], content: bytes) -> str | None:
    """Return the error message of the parser, or None if it accepts the bytes."""
    try:
        read(content)
    except InputError as error:
        if not (error.field and error.found and error.accepted):
            raise AssertionError(f"an error that leaves something out: {error}") from error
        return str(error)
    except RecalibError as error:
        return str(error)
    return None


def _file(name: str) -> Parser:
    def parse(content: bytes) -> object:
        data = read(io.BytesIO(content), format=name, labels="optional")
        assert not np.isnan(data.logits).any()
        assert data.labels is None or len(data.labels) == len(data.logits)
        return data

    seeds = [write(_LOGITS, _LABELS) for format, write in WRITERS.values() if format == name]
    return Parser(parse, tuple(seeds))


def _parameter_file(content: bytes) -> object:
    calibrator = Calibrator.from_bytes(content)
    classes = calibrator.card.classes
    if classes > _FEW_CLASSES:
        return calibrator
    # Parameters can be any numbers, so the result need not be a distribution.
    with np.errstate(all="ignore"):
        return calibrator.predict(np.zeros((2, classes)))


def _uploaded_calibrator(content: bytes) -> object:
    with np.errstate(all="ignore"):
        calibrator = check_parameter_file(content, 4, None)
        probabilities = calibrator.predict(np.zeros((2, 4)))
    assert np.isfinite(probabilities).all()
    assert not calibrator.card.metrics
    return calibrator


def _calibrator(name: str, classes: int = 4) -> bytes:
    """Load a calibrator without the checksum, which an attacker would change as well."""
    map = configure(MAPS, name, {}, field="map")
    card = Card(
        map=name,
        objective="nll",
        classes=classes,
        library="0",
        created_at="2026-01-01T00:00:00Z",
        data=DataSummary(9),
        fit=FitSummary(0.1, 3, True, 0.5),
    )
    content: bytes = safetensors.numpy.save(
        Calibrator(map.start(classes, 1.5), card).parameters, metadata={"card": card.to_json()}
    )
    return content


def _in_child(read: Callable[..., None], **arguments: str) -> Callable[[bytes], object]:
    return lambda content: call_in_child(read, content, **arguments)


def _log() -> bytes:
    """Return a log with all columns, in two row groups."""
    target = io.BytesIO()
    columns = {
        "time": [1.0, 2.0, 3.0],
        "correct": [True, None, False],
        "label_time": pa.array([2, None, 4], pa.timestamp("ns")),
        "segment": ["a", "b", "a"],
        "probabilities": [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]],
        "other": ["not", "read", "at all"],
    }
    pq.write_table(pa.table(columns), target, row_group_size=2)
    return target.getvalue()


def _recipe(suffix: str) -> Callable[[bytes], object]:
    def parse(content: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="recipe-") as folder:
            path = Path(folder, f"recipe{suffix}")
            path.write_bytes(content)
            return read_recipe(path)

    return parse


_TOML = b"""name = "a"
epochs = 3
data = {source = "arrays", options = {train = "t.npz", test = "u.npz"}, validation = 0.1}
[model]
name = "linear"
[loss]
primary = "focal"
options = {gamma = 3.0}
[optimiser]
milestones = [1.0, 2.0]
[tune]
beta = [0.5, 1.0]
"""
_JSON_RECIPE = json.dumps(
    {
        "data": {"source": "shapes", "validation": 10},
        "model": {"name": "segmenter", "options": {"width": 8}},
        "loss": {"secondary": "mmce", "beta": 2, "schedules": {"beta": {"values": [1], "at": [0]}}},
    }
).encode()


def _calibrate(decode: Callable[[bytes], Any]) -> Callable[[bytes], object]:
    return lambda body: check_logits(decode(body))


def _v2(content: bytes) -> object:
    """Parse the header, a line end, and the body; an empty first line means no header."""
    length, _, body = content.partition(b"\n")
    question = tensors.parse(body, length.decode("latin-1") or None)
    return check_logits(question.batch.values)


def _v2_json(**more: Any) -> bytes:
    tensor = {"name": "logits", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}
    request = {"id": "é", "inputs": [{**tensor, **more.pop("tensor", {})}], **more}
    return json.dumps(request).encode()


def _v2_binary(datatype: str, size: int) -> bytes:
    tensor = {"name": "logits", "shape": [2, 3], "datatype": datatype}
    tensor["parameters"] = {"binary_data_size": size}  # type: ignore[assignment]
    outputs = [{"name": "probabilities", "parameters": {"binary_data": True}}]
    text = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    return b"%d\n" % len(text) + text + bytes(range(1, size + 1))


def _prediction_ids(content: bytes) -> object:
    texts = content.decode("utf-8", "surrogateescape").split("\n")
    return read_ids(texts, {1: _KEY}, model=7, now=_NOW, lifetime_seconds=1e6)


def _query(content: bytes) -> object:
    options = predict._options(content, b"", b"", b"")
    if options.ids is not None:
        assert 0 <= options.ids <= 1
    return options


def _own_matrix(content: bytes) -> object:
    request = _message(pb.CalibrateRequest, content)
    return check_logits(predict_rpc.array_of(request.matrix))


def _v2_tensor(content: bytes) -> object:
    request = _message(v2.ModelInferRequest, content)
    if not request.inputs:
        return None
    return check_logits(inference_rpc._decode(request).values)


def _message(kind: Any, content: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(content)
    except DecodeError:  # rejected by `service.grpc.rpc` before handlers run
        return kind()


def _unpacked(encoding: str) -> Callable[[bytes], object]:
    def parse(body: bytes) -> object:
        plain = compression.decompress(body, encoding, _MAX_BODY_BYTES)
        assert len(plain) <= _MAX_BODY_BYTES
        return plain

    return parse


def _text(act: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: act(content.decode("latin-1"))


_V2_RAW = v2.ModelInferRequest(model_name="m", raw_input_contents=[bytes(24)])
_V2_RAW.inputs.add(name="logits", datatype="FP32", shape=[2, 3])
_V2_RAW.parameters["input"].string_param = "logits"
_V2_TYPED = v2.ModelInferRequest(model_name="m")
_V2_TYPED.inputs.add(name="logits", datatype="FP64", shape=[1, 3]).contents.fp64_contents.extend(
    [1, 2, 3]
)
_ROWS = b'{"logits": [[1, 2.5, null], [-3e2, 0, 1]]}'
_MANY = b'{"logits": [' + b", ".join([b"[1.25, 2.5, -3.75]"] * 150) + b"]}"
_IDS = mint(_KEY, 7, 1, _NOW, BatchSummary([0.5, 0.25], [0.5, 0.75], [1, 0]))

PARSERS: dict[str, Parser] = {
    **{name: _file(name) for name in FORMATS if name != "parquet"},
    "calib": Parser(
        _parameter_file,
        tuple(_calibrator(name) for name in ("temperature", "matrix", "vector", "dirichlet")),
    ),
    "uploaded calib": Parser(
        _uploaded_calibrator,
        tuple(_calibrator(name) for name in ("temperature", "matrix", "intra_order_preserving")),
    ),
    # pyarrow can end the process that reads a damaged footer.
    "parquet": Parser(
        _in_child(read_chunks, format="parquet"),
        (write_parquet(_LOGITS, _LABELS), write_parquet_columns(_LOGITS, _LABELS)),
    ),
    "replay": Parser(_in_child(read_log), (_log(),)),
    "recipe.toml": Parser(_recipe(".toml"), (_TOML,)),
    "recipe.json": Parser(_recipe(".json"), (_JSON_RECIPE,)),
    "calibrate json": Parser(
        _calibrate(lambda body: np.asarray(parsing.decode_json(body, "logits"), np.float32)),
        (_ROWS, _MANY),
    ),
    "calibrate npy": Parser(
        _calibrate(lambda body: parsing.decode_npy(body, "logits")),
        (npy(_LOGITS), npy(np.asfortranarray(_LOGITS.astype(">f8"))), npy(np.eye(3, dtype=int))),
    ),
    "calibrate arrow": Parser(
        _calibrate(lambda body: parsing.decode_arrow(body, "logits", _MAX_BODY_BYTES)),
        (stream_of(list_table(_LOGITS, None)),),
    ),
    "v2": Parser(
        _v2,
        (
            b"\n" + _v2_json(),
            b"\n" + _v2_json(tensor={"data": [[1, 2, None], [4, 5, 6]], "datatype": "FP64"}),
            b"\n" + _v2_json(parameters={"input": "probabilities", "binary_data_output": True}),
            _v2_binary("FP32", 24),
            _v2_binary("BF16", 12),
        ),
    ),
    "v2 gzip": Parser(_unpacked("gzip"), (gzip.compress(_MANY),)),
    "v2 deflate": Parser(_unpacked("deflate"), (zlib.compress(_MANY),)),
    "labels": Parser(
        lambda body: decode_document(labels._decoder, body, "labels"),
        (
            json.dumps(
                [{"prediction_id": prediction_id, "label": 1} for prediction_id in _IDS]
            ).encode(),
        ),
    ),
    "observations": Parser(
        lambda body: labels.parse_observations(body, 100),
        (b'{"logits": [[1, 2, null]], "labels": ["a"], "times": [1.8e9], "segment": "s"}',),
    ),
    "prediction ids": Parser(_prediction_ids, ("\n".join(_IDS).encode(),)),
    "cursor": Parser(_text(decode_cursor), (b"cmVzbmV0LTUw", b"MTI=")),
    "query": Parser(_query, (b"calibrator=champion&ids=0.5&top_k=3&input=logits&segment=a%20b",)),
    "ids": Parser(_text(ids.parse_share), (b"0.25", b"1e-3")),
    "accept": Parser(
        _text(lambda text: negotiation.negotiate(text, parsing.REQUEST_TYPES)),
        (b"application/json;q=0.5, application/x-npy, */*;q=0.001",),
    ),
    "content type": Parser(
        _text(lambda text: bodies.parse_media_type(text, parsing.REQUEST_TYPES)),
        (b"Application/JSON; charset=utf-8",),
    ),
    "grpc matrix": Parser(
        _own_matrix,
        (
            pb.CalibrateRequest(
                model="m", matrix=pb.Matrix(rows=2, classes=3, raw=bytes(24))
            ).SerializeToString(),
            pb.CalibrateRequest(
                model="m", matrix=pb.Matrix(rows=1, classes=3, values=[1, 2, 3])
            ).SerializeToString(),
        ),
    ),
    "grpc tensor": Parser(_v2_tensor, (_V2_RAW.SerializeToString(), _V2_TYPED.SerializeToString())),
}
