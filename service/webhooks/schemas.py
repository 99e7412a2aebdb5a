"""Requests for webhooks."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from recalib.webhooks import Format
from service.schemas import Text


class WebhookCreate(BaseModel):
    """A request for a webhook."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Text = Field(max_length=2_000, description="An http or https URL with a public address.")
    model: Text | None = Field(
        None, description="Events of this model only; by default of all, and of no model."
    )
    types: list[Text] = Field(
        [], description="Types of events, or their first words: `job` for `job.failed`."
    )
    format: Format = Field(
        "recalib",
        description="`recalib`: the event as in the API; `slack`: a line of text; "
        "`alertmanager`: as Alertmanager's webhooks, for changes of a monitoring state.",
    )


class WebhookChange(BaseModel):
    """A change of a webhook; a field that is absent or null keeps its value."""

    model_config = ConfigDict(extra="forbid", strict=True)

    #: An http or https URL with a public address.
    url: Text | None = Field(None, max_length=2_000)
    enabled: bool | None = Field(
        None, description="An enabled webhook continues after the last event that it was sent."
    )


class SecretRotation(BaseModel):
    """A request to replace the secret."""

    model_config = ConfigDict(extra="forbid", strict=True)

    overlap_seconds: float = Field(
        86_400.0,
        ge=0,
        le=2_592_000,
        allow_inf_nan=False,
        description="How long the present secret signs messages too. 0 ends all previous secrets, "
        "for a secret that others know.",
    )
