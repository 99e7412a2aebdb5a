"""What the Open Inference Protocol's questions and answers look like, for its description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

__all__ = [
    "Error", "InferAnswer", "ModelMetadata", "ModelReady", "ServerLive", "ServerMetadata",
    "ServerReady", "TensorMetadata",
]  # fmt: skip


class ServerMetadata(BaseModel):
    """What answers."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(BaseModel):
    """Whether the process answers; and whether requests can be served, for who asks once."""

    live: bool
    ready: bool


class ServerReady(ServerLive):
    """Whether requests can be served."""


class ModelReady(BaseModel):
    """Whether a model's calibrator can be asked."""

    name: str
    ready: bool


class TensorMetadata(BaseModel):
    """An input or an output; −1 is any number."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What a model's calibrator takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputTensor(TensorMetadata):
    """Probabilities, row by row in one list; their bytes follow the JSON where it has no `data`.

    Where `prediction_ids` are asked for, another with a text a row.
    """

    data: list[float] | list[str] | None = None
    parameters: dict[str, Any] | None = None


class InferAnswer(BaseModel):
    """Calibrated probabilities."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]


class Error(BaseModel):
    """What was wrong."""

    error: str = Field(description="In one sentence.")
