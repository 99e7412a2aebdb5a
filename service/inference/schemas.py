"""Schemas of the Open Inference Protocol for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ServerMetadata(BaseModel):
    """Name, version and extensions of the server."""

    #: `recalib`.
    name: str
    #: Version of the server.
    version: str
    #: Extensions of the protocol.
    extensions: list[str]


class ServerLive(BaseModel):
    """Whether the server is alive, and whether it is ready."""

    #: Whether the server is alive.
    live: bool
    #: Whether requests can be served.
    ready: bool


class ServerReady(ServerLive):
    """Whether the server is ready for requests."""


class ModelReady(BaseModel):
    """Whether a model is ready."""

    #: Name of the model.
    name: str
    #: Whether requests for it are answered.
    ready: bool


class TensorMetadata(BaseModel):
    """An input or an output; a length of −1 means any length."""

    #: Name of the tensor.
    name: str
    #: Type of its numbers, such as `FP32`.
    datatype: str
    #: Length of each axis.
    shape: list[int]


class ModelMetadata(BaseModel):
    """Inputs and outputs of a model's calibrator."""

    #: Name of the model.
    name: str
    #: Its versions.
    versions: list[str]
    #: `recalib`.
    platform: str
    #: What it takes.
    inputs: list[TensorMetadata]
    #: What it returns.
    outputs: list[TensorMetadata]


class OutputTensor(TensorMetadata):
    """Probabilities as a flat list in row order; without `data`, their bytes follow the JSON.

    If `prediction_ids` are requested, another output has a text for each row; if `sets` are, one
    has a truth value for each class of each row, if `intervals` are, one has both ends of that of
    each probability, and if `accepted` is, one has a truth value for each row.
    """

    #: The values, in row order.
    data: list[float] | list[str] | list[bool] | None = None
    #: Parameters of the protocol.
    parameters: dict[str, Any] | None = None


class InferAnswer(BaseModel):
    """Calibrated probabilities."""

    #: Name of the model.
    model_name: str
    #: Number of the version.
    model_version: str | None = None
    #: The `id` of the request.
    id: str | None = None
    #: The outputs.
    outputs: list[OutputTensor]
    parameters: dict[str, Any] | None = Field(
        None,
        description="`uncalibrated` is true, without a version, if the model has no champion.",
    )


class Error(BaseModel):
    """An error."""

    error: str = Field(description="The error, in one sentence.")
