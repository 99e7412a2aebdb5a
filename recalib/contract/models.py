"""Models and deletions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from recalib.contract.base import Resource, Time, one_of
from recalib.core.card import PredictionPolicy

Task = Literal["multiclass", "multilabel"]


class Model(Resource):
    """A registered classifier."""

    #: Name of the model.
    name: str
    #: K, the number of logits of a row.
    classes: int
    #: Names of the classes, where they were given.
    labels: tuple[str, ...] | None
    #: `multilabel`: each of the K labels has its own probability.
    task: Annotated[str, one_of(Task)] = "multiclass"
    #: When it was created.
    created_at: Time
    #: The monitoring settings. A server checks them, and those of retention.
    monitoring: dict[str, Any] = Field({})
    #: Description by a person.
    description: str = ""
    #: Tags by a person.
    tags: tuple[str, ...] = ()
    #: How long resources are kept, in seconds; None is for ever.
    retention: dict[str, float | None] = Field({})
    #: Which predictions fits and refits may change. Null for a multilabel model, and for a model
    #: that was created before this setting: its fits keep the predicted class, its refits what the
    #: map of the champion keeps.
    predictions: Annotated[str, one_of(PredictionPolicy)] | None = None
    #: Whether the model answers with its own probabilities, marked `uncalibrated`, while it has no
    #: champion; otherwise requests get 409.
    serve_uncalibrated: bool = False
    #: After a change of the monitoring settings: why the champion cannot stay fresh under them, and
    #: what to do.
    warnings: tuple[str, ...] = ()


class Deletion(Resource):
    """A deletion: the resource is hidden at once, and its content is erased later."""

    #: When it was hidden.
    deleted_at: Time
    #: Time from which its content is erased.
    erased_after: Time
