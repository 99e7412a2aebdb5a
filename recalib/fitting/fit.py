"""From logits and labels to a calibrator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats, Integers, check_labels, check_logits, check_probabilities
from recalib.arrays import log_probabilities as as_logits
from recalib.calibrator import Calibrator
from recalib.card import Card, DataSummary, FitSummary, Measured
from recalib.errors import InputError
from recalib.fitting.newton import fit_temperature
from recalib.maps import MAPS, Map
from recalib.metrics.evaluate import evaluate
from recalib.objectives import OBJECTIVES, Objective
from recalib.ops import NumpyOps
from recalib.options import configure, options_of

__all__ = ["fit", "fit_map"]

Progress = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Fitted:
    """What a solver returns."""

    parameters: dict[str, NDArray[np.float64]]
    summary: FitSummary


def fit(
    logits: ArrayLike,
    labels: ArrayLike,
    map: str = "temperature",
    objective: str = "nll",
    *,
    input: Literal["logits", "probabilities"] = "logits",
    class_labels: tuple[str, ...] | None = None,
    data: DataSummary | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Calibrator:
    """Fit a post-hoc map and return it with its card.

    Parameters
    ----------
    logits: (N, K); −inf masks a class. Probabilities where `input` says so: they are taken as
        their logarithm, clipped at 1e-38.
    labels: (N,), integers in [0, K).
    map: a name in `recalib.maps.MAPS`.
    objective: a name in `recalib.objectives.OBJECTIVES`.
    input: what `logits` holds; never guessed.
    class_labels: names of the classes, for the card.
    data: where the rows come from, for the card.
    progress: called with the stage's name, the iteration and the objective's value.
    options: the map's and the objective's own options.

    Raises
    ------
    InputError: anything in the input that cannot be used, or an unknown name or option.
    """
    the_map, the_objective = configured(map, objective, options)
    z, y = checked(logits, labels, input)
    fitted = fit_map(the_map, the_objective, z, y, progress)
    card = Card(
        map=map,
        objective=objective,
        options=options_of(the_objective) | options_of(the_map),
        classes=z.shape[1],
        labels=class_labels,
        input=input,
        library=version("recalib"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        data=data or DataSummary(rows=len(z)),
        fit=fitted.summary,
    )
    return _measured(Calibrator(fitted.parameters, card), z, y)


def configured(map: str, objective: str, options: Mapping[str, Any]) -> tuple[Map, Objective]:
    """Return the map and the objective that names and options describe.

    Options are shared out by name. An option that neither knows is an `InputError`.
    """
    objective_type = OBJECTIVES.get(objective)
    known = getattr(objective_type, "__dataclass_fields__", {})
    of_objective = {name: value for name, value in options.items() if name in known}
    of_map = {name: value for name, value in options.items() if name not in known}
    the_objective = configure(OBJECTIVES, objective, of_objective, field="objective")
    return configure(MAPS, map, of_map, field="map"), the_objective


def checked(
    logits: ArrayLike,
    labels: ArrayLike,
    input: str,
) -> tuple[Floats, Integers]:
    """Return checked logits and labels from what the caller says is `input`."""
    if input == "logits":
        z = check_logits(logits)
    elif input == "probabilities":
        z = as_logits(check_probabilities(logits))
    else:
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    return z, check_labels(labels, logits=z)


def fit_map(
    map: Map,
    objective: Objective,
    logits: Floats,
    labels: Integers,
    progress: Progress | None = None,
) -> Fitted:
    """Return the fitted parameters of `map`, for checked logits (N, K) and labels (N,)."""
    started = time.perf_counter()
    solver = SOLVERS.get((map.name, objective.name), _by_gradient)
    if not map.parameters(logits.shape[1]):
        solver = _nothing_to_fit
    parameters, outcome = solver(map, objective, logits, labels, progress)
    seconds = time.perf_counter() - started
    warnings = (*outcome.pop("warnings", ()), *_warnings(logits, labels))
    return Fitted(parameters, FitSummary(seconds=seconds, warnings=warnings, **outcome))


def _warnings(logits: Floats, labels: Integers) -> list[str]:
    """Return what a careful colleague would say about these rows, whatever the map."""
    rows, classes = logits.shape
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    warnings = []
    if rows < classes:
        warnings.append(f"{rows} rows for {classes} classes: too few to trust the result")
    if len(absent) > 0:
        some = ", ".join(str(k) for k in absent[:5]) + (", ..." if len(absent) > 5 else "")
        warnings.append(f"{len(absent)} of {classes} classes never occur in the labels: {some}")
    return warnings


def _measured(calibrator: Calibrator, logits: Floats, labels: Integers) -> Calibrator:
    """Return the calibrator with its metrics before and after, on these rows, in its card."""
    after = calibrator.reference(logits)
    measurements = {
        "before": evaluate(labels, logits=logits, level=0.95),
        "after": evaluate(labels, probabilities=after, level=0.95),
    }
    metrics = {
        when: {name: Measured(one.value, one.low, one.high) for name, one in estimates.items()}
        for when, estimates in measurements.items()
    }
    card = msgspec.structs.replace(calibrator.card, metrics=metrics)
    return Calibrator(calibrator.parameters, card)


_Outcome = tuple[dict[str, NDArray[np.float64]], dict[str, Any]]


def _newton(
    map: Map,
    objective: Objective,
    logits: Floats,
    labels: Integers,
    progress: Progress | None,
) -> _Outcome:
    found = fit_temperature(logits, labels)
    if progress is not None:
        progress("temperature", found.iterations, found.nll)
    reached = f"temperature at its {found.bound} bound {found.temperature:.6g}"
    return {"temperature": np.array(found.temperature)}, {
        "iterations": found.iterations,
        "converged": found.converged,
        "objective": found.nll,
        "bounds_reached": (reached,) if found.bound else (),
        "warnings": found.warnings,
    }


def _by_gradient(
    map: Map,
    objective: Objective,
    logits: Floats,
    labels: Integers,
    progress: Progress | None,
) -> _Outcome:
    # Here and not above: torch takes a second to import, and temperature scaling needs none.
    from recalib.fitting.gradient import fit_by_gradient

    single = fit_temperature(logits, labels)
    start = map.start(logits.shape[1], single.temperature)

    def report(iteration: int, value: float) -> None:
        if progress is not None:
            progress(map.name, iteration, value)

    found = fit_by_gradient(map, objective, logits, labels, start, report)
    return found.parameters, {
        "iterations": single.iterations + found.iterations,
        "converged": single.converged and found.converged,
        "objective": found.objective,
        "bounds_reached": tuple(found.bounds),
        "warnings": (*single.warnings, *found.warnings),
    }


def _nothing_to_fit(
    map: Map,
    objective: Objective,
    logits: Floats,
    labels: Integers,
    progress: Progress | None,
) -> _Outcome:
    ops = NumpyOps()
    log_p = map.log_probabilities(ops, logits.astype(np.float64, copy=False), {})
    value = float(objective.loss(ops, log_p, labels))
    return {}, {"iterations": 0, "converged": True, "objective": value}


#: Where something faster than the general gradient method exists.
SOLVERS: dict[
    tuple[str, str], Callable[[Map, Objective, Floats, Integers, Progress | None], _Outcome]
] = {
    ("temperature", "nll"): _newton,
}
