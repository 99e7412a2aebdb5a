"""Create a report on data of independent labels: fit maps, recommend one, and measure it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats
from recalib.core.label_arrays import label_log_odds
from recalib.core.options import check_names
from recalib.errors import InputError
from recalib.files import Input
from recalib.fitting.cross_validation import (
    Candidate,
    held_out,
    incomparable,
    mean_and_standard_error,
    random_folds,
)
from recalib.fitting.fit import fit
from recalib.fitting.request import configure_pair
from recalib.maps.labels import LABEL_MAPS
from recalib.reporting.html_report.changes import verdict_sentence
from recalib.reporting.html_report.findings import count_shared_rows
from recalib.reporting.html_report.rendering import Page, Source
from recalib.reporting.html_report.results import VersionResult
from recalib.reporting.html_report.versions import (
    MapChoice,
    MapScore,
    Scores,
    create_versions_report,
)

_UNCALIBRATED = "uncalibrated"
#: With fewer rows there is no comparison by cross-validation.
_MIN_ROWS = 5


@dataclass(frozen=True, repr=False)
class LabelReport(Page):
    """A page and its main results."""

    choice: MapChoice
    #: The recommended map, fitted to all rows for fits.
    recommended: Calibrator
    warnings: list[str]
    #: The test rows as they are, and calibrated; equal if `identity` is recommended.
    before: VersionResult
    after: VersionResult
    #: Whether calibration helps, in a sentence; empty without changes.
    verdict: str
    html: str

    def __repr__(self) -> str:
        return f"<LabelReport: {self.verdict or self.choice.reason}>"


def create_label_report(
    validation: Source,
    test: Source,
    maps: Sequence[str] | None = None,
    *,
    input: Input = "logits",
    class_labels: tuple[str, ...] | None = None,
    title: str = "Calibration report",
    progress: Callable[[str], None] = lambda text: None,
) -> LabelReport:
    """Compare maps on the validation rows, and measure the recommended one on the test rows.

    Parameters
    ----------
    validation: the data for fits; its labels are (N, K).
    test: the data for measuring, with the same labels.
    maps: names in `recalib.maps.labels.LABEL_MAPS`, all by default; `identity` always competes.
    input: whether the data have logits or probabilities.
    class_labels: a name for each label; numbers by default.
    title: the title of the page.
    progress: called with a message before each step.

    Raises
    ------
    InputError: an unknown map, fewer than five rows for fits, or rows that are not valid.
    """
    check_names("maps", maps or (), LABEL_MAPS)
    rows, labels = validation.data.logits, validation.data.labels
    names = [name for name in LABEL_MAPS if name == "identity" or not maps or name in maps]
    log_odds = rows if input == "logits" else label_log_odds(rows)
    choice = _choose(names, log_odds, labels, progress)
    recommended = fit(
        rows, labels, choice.map, task="multilabel", input=input, class_labels=class_labels
    )
    shared = count_shared_rows(rows, test.data.logits)
    summary = recommended.card.fit
    warnings = [*summary.warnings, *(f"a bound was reached: {b}" for b in summary.bounds_reached)]
    if shared:
        warnings.append(
            f"{shared:,} of {test.rows:,} test rows are in the validation file too: their metrics "
            "are optimistic"
        )
    versions: dict[str, Callable[[], Scores]] = {_UNCALIBRATED: lambda: (input, test.data.logits)}
    if choice.map != "identity":
        versions[choice.map] = lambda: (
            "probabilities",
            recommended.predict(test.data.logits, input=input),
        )
    page = create_versions_report(
        test,
        versions,
        input=input,
        class_names=class_labels,
        warnings=warnings,
        choice=choice,
        further_sources={"validation": validation},
        title=title,
        progress=progress,
    )
    before, after = page.results[0], page.results[-1]
    verdict = verdict_sentence(after.changes) if after.changes else ""
    return LabelReport(choice, recommended, warnings, before, after, verdict, page.html)


def _choose(
    names: Sequence[str],
    log_odds: Floats,
    labels: NDArray[np.bool_],
    progress: Callable[[str], None],
) -> MapChoice:
    """Return the simplest map whose NLL is within one standard error of the lowest.

    The NLL is that of held-out rows in random folds, a mean over rows and labels. The standard
    error is that of the difference between two maps on the same rows. It is `identity` if the rows
    determine no map.
    """
    if len(labels) < _MIN_ROWS:
        accepted = f"at least {_MIN_ROWS} rows to compare maps"
        raise InputError("validation", found=f"{len(labels)} rows", accepted=accepted)
    folds = random_folds(len(labels))
    scores = {}
    for name in names:
        progress(f"comparing {name}")
        candidate = Candidate(*configure_pair(name, "nll", {}, "multilabel"))
        scores[name] = held_out(candidate, log_odds, labels, folds)
    losses = {name: score.nll / labels.shape[1] for name, score in scores.items()}
    best = min(names, key=lambda name: cast(float, losses[name].mean()))
    differences = {
        name: mean_and_standard_error(loss - losses[best]) for name, loss in losses.items()
    }
    chosen = next(name for name, (mean, error) in differences.items() if mean <= error)
    reason = "the lowest NLL on held-out folds"
    unknown = incomparable(scores[best], labels)
    if unknown is not None:
        chosen, reason = "identity", f"these rows determine no map: {unknown}"
    elif chosen != best:
        reason = f"its NLL on held-out folds is within one standard error of {best}, and simpler"
    rows = [
        MapScore(name, LABEL_MAPS[name].summary, float(losses[name].mean()), *differences[name])
        for name in names
    ]
    return MapChoice(chosen, f"{chosen}: {reason}", len(labels), int(folds.max()) + 1, rows)
