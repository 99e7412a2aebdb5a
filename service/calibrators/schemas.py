"""Requests for calibrators and aliases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from recalib.core.card import SetGroups, SetMethod
from recalib.core.field_types import Documented, Fraction, Interval
from recalib.fitting.auto import AUTO
from recalib.maps import MAPS
from recalib.maps.labels import LABEL_MAPS
from recalib.objectives import OBJECTIVES
from service.schemas import MAX_VERSION, Text

#: Those of both tasks, each once.
_MAPS = list(dict.fromkeys([*MAPS, *LABEL_MAPS, AUTO]))
#: The fields of `recalib.sets.conformal.resolve_fields`.
SET_FIELDS = ("sets", "coverage", "sets_by", "sets_penalty", "sets_k_reg")


class Resampled(BaseModel):
    """How the training of the classifier was rebalanced; rows of data sets are as in use."""

    model_config = ConfigDict(extra="forbid")

    class_weight: Literal["balanced"] | list[float] = Field(
        description="Weight of each class in the training, positive; `balanced` if each class "
        "weighed the same."
    )


class CalibratorCreate(BaseModel):
    """A request to fit a calibrator, or to publish one that was fitted elsewhere."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text | None = Field(
        None,
        description="Name of an uploaded data set of this model: to fit on, which is required; or "
        "with `parameters`, to compare on.",
    )
    map: Annotated[Text, Documented({"enum": _MAPS})] = Field(
        "temperature",
        description="The post-hoc map to fit; `auto` selects the map by cross-validation. A "
        f"multilabel model has the maps {', '.join(LABEL_MAPS)}.",
    )
    objective: Annotated[Text, Documented({"enum": [*OBJECTIVES]})] = Field(
        "nll", description="The objective that the fit minimises."
    )
    options: dict[str, Any] = Field({}, description="Options of the map and of the objective.")
    sets: SetMethod | None = Field(
        None,
        description="Also fit thresholds of prediction sets: the map is fitted on one half of the "
        "rows, and the thresholds on the other.",
    )
    coverage: Fraction | None = Field(
        None, description="The probability with which a set holds the label; 0.9 by default."
    )
    sets_by: SetGroups = Field(
        "all", description="One threshold of sets for all classes, or one for each, or clusters."
    )
    sets_folds: Annotated[int, Interval(ge=2)] | None = Field(
        None,
        description="For few rows: all fit the map, and thresholds come from out-of-fold "
        "probabilities; the coverage is approximate.",
    )
    sets_penalty: Annotated[float, Interval(ge=0)] | None = Field(
        None,
        description="Of `raps`: what each class beyond the first `sets_k_reg` adds to its score; "
        "0.01 by default.",
    )
    sets_k_reg: Annotated[int, Interval(ge=0)] | None = Field(
        None, description="Of `raps`: how many first classes have no penalty; 5 by default."
    )
    max_risk: Fraction | None = Field(
        None,
        description="Also fit the confidence below which rows are rejected, on the half of the "
        "rows that thresholds of sets have: of accepted rows at most this share is wrong.",
    )
    resampled: Resampled | None = Field(
        None,
        description="For a classifier that was trained on rebalanced classes, with the objective "
        "`nll`: probabilities are corrected for the rows that it is used on.",
    )
    promote: bool | Literal["if_better"] = Field(
        "if_better",
        description="Whether the new version becomes the champion: always, never, or if its "
        "cross-validated NLL beats the champion's (the NLL of the classifier if there is none) by "
        "more than the threshold in the job's result, in standard errors. For a multilabel model, "
        "the NLL of a row is the sum over its labels.",
    )
    force: bool = Field(
        False,
        description="Promote also if the rows do not look like logits of the model: probabilities "
        "or percentages, another scale than before, other columns, accuracy at chance.",
    )
    parameters: Base64Bytes | None = Field(
        None,
        description="A `.calib` file in base64, to publish it as a version, without `map`, "
        "`objective`, `options` and `sets`. Its sets and segments of one column are served. The "
        "metrics of its card are shown as claims.",
    )
    row_digests: Base64Bytes | None = Field(
        None,
        description="Digests of the rows that the file was fitted on, 8 bytes each, in base64; see "
        "`recalib.fitting.row_digests`. Without them, the rows are those of the model's data set "
        "with the digest in the card, if there is one.",
    )


class AliasSet(BaseModel):
    """The new version of an alias."""

    model_config = ConfigDict(extra="forbid", strict=True)

    #: Number of the version.
    version: Annotated[int, Interval(ge=1, le=MAX_VERSION)]
    reason: Text = Field("", max_length=500, description="Kept in the audit trail.")
    force: bool = Field(
        False,
        description="Promote also a version of rows that do not look like logits of the model.",
    )
