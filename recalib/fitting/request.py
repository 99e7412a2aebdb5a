"""What to fit: a map and an objective with their options, or the policy `auto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.core.card import AutoChoice, Card, RejectionOptions
from recalib.core.options import configure, options_of, unknown_name
from recalib.errors import InputError
from recalib.files import Task
from recalib.fitting.auto import AUTO, Auto, choose
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.problem import Progress
from recalib.fitting.solvers import check_device_pair, fits_pair, pair_error
from recalib.fitting.stack import weigh_classes
from recalib.maps import MAPS, Map, card_options
from recalib.maps.labels import LABEL_MAPS, LabelMap
from recalib.maps.stack import Member, Stack
from recalib.objectives import OBJECTIVES, Objective
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.sets.conformal import options_of_sets

_NOT_OF_AUTO = {"start": f"none: {AUTO} may choose another map", "device": "a single map"}


@dataclass(frozen=True)
class AutoPolicy:
    """The policy `auto` with the objective of its candidates."""

    auto: Auto
    objective: Objective
    #: (K,): maps compete on rows with these weights, and the choice gets them; see `Stack`.
    class_weight: tuple[float, ...] = ()

    def choose(
        self,
        logits: Floats,
        labels: Integers,
        weights: NDArray[np.float64] | None,
        groups: NDArray[np.intp] | None,
        progress: Progress | None,
        *,
        smooths: bool = True,
    ) -> tuple[Candidate, AutoChoice]:
        """Return the selected candidate and the reason; the arguments are those of `choose`."""
        candidate, choice = choose(
            self.auto.candidates(self.objective),
            logits,
            labels,
            weigh_classes(self.class_weight, labels, weights),
            groups,
            predictions=self.auto.policy,
            smooths=smooths,
            max_seconds=self.auto.max_seconds,
            progress=progress,
        )
        candidate = with_class_weights(candidate, self.class_weight)
        return candidate, msgspec.structs.replace(choice, map=candidate.map.name)


def resolve_fit(
    map: str, objective: str, options: Mapping[str, Any], task: Task = "multiclass"
) -> Candidate | AutoPolicy:
    """Return the candidate, or the policy that selects one, for the given names and options.

    Raises
    ------
    InputError: an unknown map, objective or option, or an incompatible pair.
    """
    if map != AUTO or task == "multilabel":
        return Candidate(*configure_pair(map, objective, options, task))
    the_objective, map_options = _objective_of(objective, options)
    return AutoPolicy(configure({AUTO: Auto}, AUTO, map_options, field="map"), the_objective)


def check_request(request: Candidate | AutoPolicy, **arguments: Any) -> None:
    """Raise `InputError` for an argument that the fit of the request does not take.

    Parameters
    ----------
    arguments: of `recalib.fit`: `start`, `groups`, `device`, `ignore_index`; None without a value.
    """
    for name, value in arguments.items():
        if value is None:
            continue
        if isinstance(request, AutoPolicy):
            if name in _NOT_OF_AUTO:
                raise InputError(name, found=f"map {AUTO}", accepted=_NOT_OF_AUTO[name])
        elif isinstance(request.map, LabelMap):
            if name != "start":
                raise InputError(name, found="task multilabel", accepted="none for multilabel")
        elif name == "groups":
            accepted = f"map {AUTO}: others need no folds"
            raise InputError(name, found=f"map {request.map.name}", accepted=accepted)
        elif name == "device":
            check_device_pair(request.map, request.objective, value)


def check_resampled(request: Candidate | AutoPolicy, **arguments: Any) -> None:
    """Raise `InputError` for a fit that takes no weights of classes; see `recalib.fit`."""
    if request.objective.name != "nll":
        raise InputError("resampled", found=request.objective.name, accepted="a map by nll")
    for name, value in arguments.items():
        if value not in (None, False, "multiclass"):
            found, accepted = f"{value} with resampled", "none"
            raise InputError(name, found=found, accepted=accepted)


def with_class_weights(candidate: Candidate, weights: tuple[float, ...]) -> Candidate:
    """Return the candidate whose map is fitted to rows of weighted classes; see `Stack`."""
    map = candidate.map
    if not weights:
        return candidate
    if not isinstance(map, Stack):
        map = Stack((Member(map.name, 1.0, options_of(map)),), pool="logarithmic")
    return Candidate(replace(map, class_weight=weights), NegativeLogLikelihood())


def split_class_weights(candidate: Candidate) -> tuple[Candidate, tuple[float, ...]]:
    """Return the candidate without weights of classes, and these: undo `with_class_weights`."""
    map = candidate.map
    if not isinstance(map, Stack) or not map.class_weight:
        return candidate, ()
    is_single = len(map.maps) == 1 and not map.smoothing
    alone = map.maps[0] if is_single else replace(map, class_weight=())
    return replace(candidate, map=alone), map.class_weight


def configure_pair(
    map: str, objective: str, options: Mapping[str, Any], task: Task = "multiclass"
) -> tuple[Map, Objective]:
    """Return the map and the objective for the given names and options.

    Options are assigned by name. An option that neither has raises `InputError`.
    """
    maps: Mapping[str, type[Map]] = LABEL_MAPS if task == "multilabel" else MAPS
    if map == AUTO:
        raise InputError("map", found=repr(map), accepted=", ".join(maps))
    if map not in maps:
        raise unknown_name("map", map, maps if task == "multilabel" else [*maps, AUTO])
    the_objective, map_options = _objective_of(objective, options)
    the_map = configure(maps, map, map_options, field="map")
    if not fits_pair(the_map, the_objective):
        raise pair_error(the_map, the_objective)
    return the_map, the_objective


def candidate_of(card: Card) -> Candidate:
    """Return the map and the objective of a card, with their options."""
    options = card.objective_options | card_options(card.map, card.options)
    return Candidate(*configure_pair(card.map, card.objective, options, card.task))


def promise_options(card: Card) -> dict[str, Any]:
    """Return the options of a fit that makes the promises of a card by new thresholds.

    Out-of-fold sets stay so, unless there is a threshold of rejection, which needs other rows.
    """
    options, rejection = options_of_sets(card.sets), None
    if card.rejection is not None:
        rejection = RejectionOptions(risk=card.rejection.risk, sureness=card.rejection.sureness)
    folds = None if card.sets is None or rejection is not None else card.sets.folds
    return {"sets": options, "sets_folds": folds, "max_risk": rejection}


def _objective_of(name: str, options: Mapping[str, Any]) -> tuple[Objective, dict[str, Any]]:
    """Return the objective with its options, and the remaining options."""
    own, rest = {}, dict(options)
    for option in getattr(OBJECTIVES.get(name), "__match_args__", ()):
        if option in rest:
            own[option] = rest.pop(option)
    return configure(OBJECTIVES, name, own, field="objective"), rest
