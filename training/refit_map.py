"""Which map a refit of a stale champion fits.

The policy `auto` selects it, and a map that the evidence has refused is fitted again only when no
other is left. Two things refuse a map: the champion's calibration error on its own validation data
exceeded the tolerance, so no drift explains that it is stale; or a candidate with this map was
dropped, because it was no better than the same champion. Multilabel models have no policy `auto`:
the next map of a list follows one that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from recalib.core.card import AutoChoice, Card, PredictionPolicy
from recalib.core.decoding import convert
from recalib.core.masks import mask_constants
from recalib.drift import ScoreTest
from recalib.fitting.auto import Auto, choose
from recalib.fitting.auto_choice import allows
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.fit import check_data
from recalib.fitting.problem import Progress
from recalib.fitting.request import candidate_of, configure_pair
from recalib.fitting.request import split_class_weights as split
from recalib.fitting.request import with_class_weights as weigh
from recalib.fitting.stack import weigh_classes
from recalib.fitting.validation_error import exceeds_tolerance
from recalib.maps.stack import Stack
from recalib.registry import Model, Transaction
from training.logit_samples import LabelledSample

#: Maps of labels to fit after the champion's, from the simplest to the most flexible.
_LABEL_MAPS = ("platt", "beta", "isotonic")


def refused_maps(tx: Transaction, model: Model, version: int, card: Card) -> dict[str, str]:
    """Return the maps that the evidence has refused as successors of champion `version`.

    Each map has the reason.
    """
    refused = {}
    if exceeds_tolerance(card, model.monitoring.tolerance):
        refused[card.map] = (
            f"the calibration error of version {version} exceeded the tolerance on its own "
            "validation data"
        )
    deleted = tx.calibrators.deleted(model)
    for candidate in tx.candidates.against(model, version):
        if candidate.version in deleted:
            continue
        if candidate.verdict == "dropped" and _is_no_better(candidate.state, candidate.alpha):
            map = convert(tx.calibrators.get(model, candidate.version).card, Card).map
            refused[map] = f"candidate {candidate.version} was no better than version {version}"
    return refused


def refit_policy(model: Model, card: Card) -> PredictionPolicy:
    """Return which predictions a refit of a champion with this card may change.

    None that the setting of the model keeps. If that keeps none, those that the champion's fit
    might change, by its own policy or else by its map.
    """
    if model.predictions not in (None, "may_change"):
        return model.predictions
    if card.choice is not None and card.choice.predictions is not None:
        return card.choice.predictions
    map = candidate_of(card).map
    if map.preserves_accuracy:
        return "keep"
    return "keep_order" if card.classes == 2 and map.preserves_order else "may_change"


def choose_map(
    card: Card,
    refused: Mapping[str, str],
    rows: LabelledSample,
    predictions: PredictionPolicy,
    progress: Progress,
) -> tuple[Candidate, AutoChoice]:
    """Return the candidate to fit after the champion with this card, and the reason.

    The candidates are those of `auto` with the champion's objective, and the champion's own map
    unless it is a stack, of those that `predictions` allows. Weights of classes for a rebalanced
    training stay.
    """
    champion, class_weight = split(candidate_of(card))
    candidates = {
        candidate.map.name: candidate for candidate in Auto().candidates(champion.objective)
    }
    if not isinstance(champion.map, Stack):  # which is no member of another
        candidates[champion.map.name] = champion
    logits, labels = check_data(rows.logits, rows.labels, "logits")
    logits, _ = mask_constants(logits, labels)
    rows_of_training = logits, labels, weigh_classes(class_weight, labels, None)
    winner, choice = choose(
        list(candidates.values()), *rows_of_training, predictions=predictions, progress=progress
    )
    if winner.map.name not in refused:
        return weigh(winner, class_weight), choice
    others = {
        result.map: result.nll.value
        for result in choice.candidates
        if result.nll is not None
        and result.map not in refused
        and result.map in candidates
        and allows(predictions, candidates[result.map])
    }
    reason = f"{winner.name} was refused: {refused[winner.map.name]}"
    if not others:
        note = f"{choice.reason}; {reason}, but no other map is left"
        weighted = weigh(winner, class_weight)
        return weighted, msgspec.structs.replace(choice, reason=note)
    name = min(others, key=lambda map: others[map])
    return weigh(candidates[name], class_weight), msgspec.structs.replace(
        choice,
        map=name,
        objective=candidates[name].objective.name,
        reason=f"{name}: the lowest NLL on held-out folds of the maps that are left; {reason}",
        winners=tuple(msgspec.structs.replace(best, chosen=False) for best in choice.winners),
        candidates=tuple(
            msgspec.structs.replace(
                result, chosen=result.map == name, weight=float(result.map == name)
            )
            for result in choice.candidates
        ),
    )


def choose_label_map(card: Card, refused: Mapping[str, str]) -> Candidate:
    """Return the candidate to fit after the champion of a multilabel model with this card.

    It is the champion's own map unless that is refused or `identity`, which has no fit; then the
    first of `_LABEL_MAPS` that is not refused, or the champion's own map if all are.
    """
    names = (name for name in (card.map, *_LABEL_MAPS) if name not in refused)
    name = next((name for name in names if name != "identity"), card.map)
    options = card.options if name == card.map else {}
    return Candidate(*configure_pair(name, "nll", options, "multilabel"))


def _is_no_better(state: dict[str, Any], alpha: float) -> bool:
    """Whether the comparison ended with this verdict, not by a user or for another reason."""
    test = ScoreTest(alpha=alpha)
    if state:
        test.restore(state)
    return test.verdict == "no better"
