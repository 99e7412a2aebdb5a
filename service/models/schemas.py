"""Requests for models, and their page."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from recalib.contract.base import Page
from recalib.contract.models import Task
from recalib.core.card import PredictionPolicy
from recalib.core.field_types import NAME, UNIQUE, Interval
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.retention_settings import RetentionSettings
from service.schemas import DetailsUpdate, Model, Text

MAX_CLASSES = 1_000_000


class ModelCreate(BaseModel):
    """A classifier to be calibrated."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, NAME] = Field(
        description="Letters, digits, '.', '_' and '-'; at most 128 of them."
    )
    classes: (
        Annotated[int, Interval(ge=2, le=MAX_CLASSES)]
        | Annotated[
            list[Text],
            Field(min_length=2, max_length=MAX_CLASSES, fail_fast=True),
            UNIQUE,
        ]
    ) = Field(description="The number of classes, or their labels in the order of the logits.")
    monitoring: MonitoringSettings = Field(
        MonitoringSettings(), description="Monitoring settings; they can be changed later."
    )
    task: Task = Field(
        "multiclass",
        description="`multilabel`: a row has any number of the K labels, each with its own "
        "probability, and the labels of data sets are (N, K). Responses have prediction ids on "
        "request only.",
    )
    predictions: PredictionPolicy | None = Field(
        None,
        description="Which predictions the fits of `auto` without this option and automatic refits "
        "may change: any (`may_change`, the default), not the order by P(y = 1) of two classes "
        "(`keep_order`), not the predicted class (`keep`). A multilabel model has no such setting.",
    )
    serve_uncalibrated: bool = Field(
        True,
        description="Whether requests get the classifier's own probabilities, marked "
        "`uncalibrated`, while the model has no champion; false: they get 409.",
    )


class ModelUpdate(DetailsUpdate):
    """A change of a model; a field that is left out stays as it is."""

    name: Annotated[str, NAME] | None = Field(
        None, description="A new name, for a model without a champion and unfinished jobs."
    )
    retention: RetentionSettings | None = Field(
        None, description="How long resources are kept; fields that are not set keep them for ever."
    )
    predictions: PredictionPolicy | None = Field(
        None, description="Which predictions later fits and refits may change."
    )
    serve_uncalibrated: bool | None = Field(
        None, description="Whether requests are answered while the model has no champion."
    )


class ModelPage(Page[Model]):
    """A page of models, ordered by name."""
