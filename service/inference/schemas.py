"""Schemas of the Open Inference Protocol for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ServerMetadata(BaseModel):
    """Name, version and extensions of the server."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(BaseModel):
    """Whether the server is alive, and whether it is ready."""

    live: bool
    ready: bool


class ServerReady(ServerLive):
    """Whether the server is ready for requests."""


class ModelReady(BaseModel):
    """Whether a model is ready."""

    name: str
    ready: bool


class TensorMetadata(BaseModel):
    """An input or an output; a length of −1 means any length."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """Inputs and outputs of a model's calibrator."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputTensor(TensorMetadata):
    """Probabilities as a flat list in row order; without `data`, their bytes follow the JSON.

    If `prediction_ids` are requested, another output has a text for each row.
    """

    data: list[float] | list[str] | None = None
    parameters: dict[str, Any] | None = None


class InferAnswer(BaseModel):
    """Calibrated probabilities."""

    model_name: str
    model_version: str | None = None
    id: str | None = None
    outputs: list[OutputTensor]
    parameters: dict[str, Any] | None = Field(
        None,
        description="`uncalibrated` is true, without a version, if the model has no champion.",
    )


class Error(BaseModel):
    """An error."""

    error: str = Field(description="The error, in one sentence.")
