"""Publish a version that was compared with the champion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from recalib.calibrator import Calibrator
from recalib.core.card import Card, Selection
from recalib.errors import ConflictError
from recalib.fitting.validation_error import validation_warnings
from recalib.registry import Model
from recalib.stats.logit_scale import Finding
from training.champion_comparison import Champion, find_champion
from training.worker import JobContext

_CHAMPION = "champion"
#: Attempts to compare with a champion that changes meanwhile; each can be a cross-validation.
_MAX_COMPARISONS = 5


def publish(
    context: JobContext,
    model: Model,
    compare: Callable[[Champion], Calibrator],
    *,
    promote: bool | str,
    dataset_name: str | None,
    row_digests: bytes | None = None,
    force: bool = False,
    findings: Sequence[Finding] = (),
) -> None:
    """Compare a calibrator with the champion, publish it and finish the job.

    The comparison is repeated if the champion changes meanwhile.

    Parameters
    ----------
    compare: returns the calibrator, with the comparison in its card.
    promote: whether the version becomes the champion: always, never or `if_better`.
    dataset_name: the data set that it was fitted on, if there is one.
    row_digests: of the rows that it was fitted on, if they are of no data set.
    force: promote it whatever was found in the rows.
    findings: why the rows of the data set may not be logits of the model.

    Raises
    ------
    ConflictError: the champion changed during each of several comparisons.
    """
    warnings = [finding.warning for finding in findings]
    for attempt in range(_MAX_COMPARISONS):
        champion = find_champion(context.registry, model)
        calibrator = compare(champion)
        card, selection = calibrator.card, calibrator.card.selection
        assert selection is not None  # noqa: S101  (set by `compare`)
        other = champion.calibrator
        drops = other is not None and bool(other.card.segments) and not card.segments
        decision = _decide(selection, promote, [] if force else findings, drops)
        context.progress(0.95, "publishing")
        fitted = fit_result(card, model, "this version")
        fitted["warnings"] = [*warnings, *fitted["warnings"]]
        result = {
            "promoted": decision.is_promoted,
            "reason": decision.reason,
            **fitted,
            "comparison": _comparison(selection),
        }
        try:
            context.publish(
                model,
                dataset_name=dataset_name,
                card=card.to_dict(),
                parameters=calibrator.to_bytes(),
                promote_alias=_CHAMPION if decision.is_promoted else None,
                reason=decision.reason,
                expected=champion.expected if decision.if_better else None,
                result=result,
                row_digests=row_digests,
            )
            return
        except ConflictError:
            if attempt + 1 == _MAX_COMPARISONS:
                raise


class _Decision(NamedTuple):
    """Whether a version is promoted, and why; `if_better` if only in place of its reference."""

    is_promoted: bool
    if_better: bool
    reason: str


def _decide(
    selection: Selection, promote: bool | str, findings: Sequence[Finding], drops_segments: bool
) -> _Decision:
    """Return whether a version is promoted; rows that are no logits of the model forbid it."""
    if_better = promote == "if_better"
    is_promoted = selection.better if if_better else bool(promote)
    refusals = [finding for finding in findings if finding.refuses]
    if refusals:
        return _Decision(False, if_better, f"not promoted without `force`: {refusals[0].text}")
    if if_better and drops_segments:
        reason = "the champion has segments, and this version has none: they are compared on rows "
        reason += "without segments; promote it with `promote: true`"
        return _Decision(False, if_better, reason)
    return _Decision(is_promoted, if_better, selection.reason if if_better else "as requested")


def fit_result(card: Card, model: Model, name: str) -> dict[str, Any]:
    """Return what the results of jobs say of a fit: map, warnings, thresholds, best maps.

    Parameters
    ----------
    name: of the version, for the warnings.
    """
    monitoring, about_monitoring = model.monitoring, []
    if not model.is_multilabel:  # its card has no calibration error with an interval
        about_monitoring = validation_warnings(
            card, name, tolerance=monitoring.tolerance, objective=monitoring.objective
        )
    result = {"map": card.map, "warnings": [*card.fit.warnings, *about_monitoring]}
    if card.thresholds is not None:
        result["thresholds"] = msgspec.to_builtins(card.thresholds)
    if card.choice is not None:
        result["winners"] = msgspec.to_builtins(card.choice.winners)
    return result


def _comparison(selection: Selection) -> dict[str, Any]:
    """Return the gain over the champion and the thresholds, for the job's result."""
    return {
        "reference": selection.reference,
        "reference_version": selection.reference_version,
        "rows": selection.rows,
        "gain": selection.reference_nll - selection.nll,
        "standard_error": selection.standard_error,
        "threshold": selection.threshold,
        "pooled": msgspec.to_builtins(selection.pooled),
        "rule": selection.rule,
    }
