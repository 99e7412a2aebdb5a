"""Results of the versions of a calibrator on one data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recalib.metrics import Estimate
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.paired import Change


@dataclass(frozen=True)
class LabelResult:
    """The metrics of one independent label, and their changes from the first version."""

    label: str
    metrics: dict[str, Estimate]
    changes: dict[str, Change]


@dataclass(frozen=True)
class VersionResult:
    """The metrics of a version, and their changes from the first version on the same rows.

    Those of independent labels are means over labels.
    """

    name: str
    metrics: dict[str, Estimate]
    #: Empty for the first version, and with one row.
    changes: dict[str, Change]
    #: One for each independent label, in the order of the columns; else empty.
    labels: Sequence[LabelResult] = ()
    #: Of segments of the rows, by `column=value`: intervals hold together; empty without segments.
    segments: Mapping[str, Evaluation[Estimate]] = field(default_factory=dict)
