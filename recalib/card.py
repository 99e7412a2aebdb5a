"""The card of a calibrator: what it is, what it was fitted on, and how well that went.

Cards travel as JSON: in the metadata of a parameter file, in the registry, over REST. Numbers are
fractions, never percentages; times are ISO 8601 in UTC.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from recalib.decoding import decoder_of
from recalib.errors import CorruptError

__all__ = [
    "AutoChoice",
    "CandidateResult",
    "Card",
    "ConfidenceHistogram",
    "DataSummary",
    "FitSummary",
    "MetricValue",
    "Selection",
]

#: The version of the card's form; a reader refuses a newer one than it knows.
FORMAT = 1


class MetricValue(msgspec.Struct, frozen=True):
    """A metric's value, and its interval where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None


class DataSummary(msgspec.Struct, frozen=True):
    """What a calibrator was fitted on."""

    rows: int
    #: SHA-256 of the file's bytes, where there was a file.
    digest: str | None = None
    #: The data set's name in the registry, or the file's name.
    name: str | None = None


class FitSummary(msgspec.Struct, frozen=True):
    """How the fit went."""

    seconds: float
    iterations: int
    converged: bool
    #: The objective at the parameters, on the data fitted to.
    objective: float
    #: Parameters that ended on a bound of their range, in words.
    bounds_reached: tuple[str, ...] = ()
    #: Options of the objective that the fit itself has set.
    settled: dict[str, float] = {}
    warnings: tuple[str, ...] = ()


class Selection(msgspec.Struct, frozen=True):
    """How the map compared with what served before it, on rows that its fit had not seen.

    Scores are mean negative log-likelihoods by cross-validation; `standard_error` is that of the
    paired difference.
    """

    folds: int
    nll: float
    reference: str
    reference_nll: float
    standard_error: float
    better: bool
    reason: str


class CandidateResult(msgspec.Struct, frozen=True):
    """How one candidate did on held-out folds; without scores where it did not compete."""

    map: str
    objective: str
    seconds: float
    chosen: bool
    #: Why it was chosen or was not.
    verdict: str
    #: Means over held-out rows, with 95% intervals by bootstrap.
    nll: MetricValue | None = None
    brier: MetricValue | None = None
    #: Its NLL less temperature scaling's on the same rows: negative is better.
    nll_difference: MetricValue | None = None


class AutoChoice(msgspec.Struct, frozen=True):
    """Why `auto` took the map that the card names."""

    map: str
    objective: str
    reason: str
    #: How many rows were cross-validated, in how many folds.
    rows: int
    folds: int
    preserve_accuracy: bool
    candidates: tuple[CandidateResult, ...]


class ConfidenceHistogram(msgspec.Struct, frozen=True):
    """How sure the calibrator was on the rows that it was fitted on: a histogram.

    Bins are [edge, next edge), at the quantiles of those confidences.
    """

    #: The inner ones (B - 1,), ascending.
    edges: tuple[float, ...]
    #: Rows in each bin (B,).
    counts: tuple[int, ...]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a calibrator but its numbers."""

    format: int = FORMAT
    map: str
    objective: str
    #: All options of the map, those left at their defaults too.
    options: dict[str, Any] = {}
    #: All options of the objective.
    objective_options: dict[str, Any] = {}
    #: K.
    classes: int
    #: Names of the classes, where known.
    labels: tuple[str, ...] | None = None
    #: What the fit was given: logits, or probabilities taken as clipped log-probabilities.
    input: Literal["logits", "probabilities"] = "logits"
    #: Version of Recalib that fitted it.
    library: str
    created_at: str
    data: DataSummary
    fit: FitSummary
    #: On the data fitted to, `before` and `after` the map: in sample, and so a little flattering.
    metrics: dict[str, dict[str, MetricValue]] = {}
    #: What served confidences are compared with; None where the fit is older than this field.
    confidences: ConfidenceHistogram | None = None
    selection: Selection | None = None
    #: Present where the policy `auto` chose the map.
    choice: AutoChoice | None = None
    #: The classifier's name in the registry.
    model: str | None = None

    def to_json(self) -> str:
        """Return the card as JSON."""
        return msgspec.json.encode(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain dictionaries and lists."""
        plain: dict[str, Any] = msgspec.json.decode(self.to_json())
        return plain

    @classmethod
    def from_json(cls, text: str | bytes) -> Card:
        """Return the card in `text`; `CorruptError` where it is not one, or of a newer form."""
        try:
            card = decoder_of(cls).decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"the card cannot be read: {error}") from None
        if card.format > FORMAT:
            raise CorruptError(
                f"the card has format {card.format}; this version reads up to {FORMAT}"
            )
        if card.classes < 2:
            raise CorruptError(f"the card names {card.classes} class(es)")
        return card
