"""What a post-hoc map promises.

A map turns the logits z (N, K) of a fixed classifier into calibrated probabilities (N, K). It is a
frozen value: its fields are its options, its fitted numbers live outside it, in a dictionary of
named arrays (`Parameters`). A member is one file that gives

- `parameters(classes)`: the name, shape and legal range of each fitted array;
- `start(classes, temperature)`: where a fit begins, given the best single temperature;
- `transform(ops, z, parameters)`: the formula, in the operations of `recalib.ops`;
- flags that state which properties hold; the contract test checks every one of them;
- where it needs one, `penalty`: what a fit adds to its objective.

Most maps are fitted by gradient, with any objective. Some have a solver of their own instead
(`fitted_by = "solver"`, in `recalib.fitting.solvers`), which defines what it minimises.

Not checked here: logits and labels. They come from `recalib.arrays`, checked once at the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.errors import CorruptError
from recalib.ops.base import Array, Ops

__all__ = ["STEP", "Link", "Map", "Parameter", "Parameters"]

Parameters = Mapping[str, NDArray[np.float64]]

#: How a fit moves a parameter, and what is legal: `log`, over the logarithm of a positive number,
#: so that it stays positive by construction; `simplex`, over non-negative numbers that are divided
#: by their sum; `real`, freely; `probability`, in [0, 1]; `ascending`, in [0, 1] and never falling
#: along the last axis; `rising`, each at least `STEP` above the one before along the last axis.
Link = Literal["log", "simplex", "real", "probability", "ascending", "rising"]

#: How far the edges and knots of a table are apart, at least: a float32 tells them apart, and a
#: width is never 0.
STEP = 1e-3


@dataclass(frozen=True)
class Parameter:
    """One fitted array: its shape, and the link that keeps it legal."""

    shape: tuple[int, ...]
    link: Link
    #: The axes that count classes: they are permuted where the classes are.
    class_axes: tuple[int, ...] = ()

    def check(self, name: str, value: NDArray[np.float64]) -> None:
        """Raise `CorruptError` unless `value` could have come from a fit."""
        if value.shape != self.shape:
            raise CorruptError(f"parameter {name} has shape {value.shape}, not {self.shape}")
        if not np.isfinite(value).all():
            raise CorruptError(f"parameter {name} is not finite")
        if self.link == "log" and not (value > 0).all():
            raise CorruptError(f"parameter {name} is not positive")
        if self.link == "simplex" and (value.min() < 0 or abs(value.sum() - 1) > 1e-6):
            raise CorruptError(f"parameter {name} is not a set of weights that sum to 1")
        if self.link in ("probability", "ascending") and not ((value >= 0) & (value <= 1)).all():
            raise CorruptError(f"parameter {name} is not in [0, 1]")
        if self.link == "ascending" and (np.diff(value) < 0).any():
            raise CorruptError(f"parameter {name} is not ascending")
        if self.link == "rising" and (np.diff(value) < STEP * (1 - 1e-6)).any():
            raise CorruptError(f"parameter {name} is not rising by {STEP} a step")


@dataclass(frozen=True)
class Map(ABC):
    """A family of functions from logits to probabilities."""

    #: The name in the registry, in cards and on the command line.
    name: ClassVar[str]
    #: One line for `--help` and reports.
    summary: ClassVar[str]
    #: What `transform` returns: `logits` still need a softmax, `probabilities` do not.
    returns: ClassVar[Literal["logits", "probabilities"]] = "logits"
    #: The predicted class is the same before and after, whatever the parameters.
    preserves_accuracy: ClassVar[bool]
    #: Adding a number to a whole row of logits changes nothing.
    shift_invariant: ClassVar[bool]
    #: `transform` on a row with −inf is right without help: each class is computed from its own
    #: logit alone, and −inf stays −inf. Others get a finite number in its place.
    passes_masks: ClassVar[bool]
    #: Small changes of the logits make small changes, unless the predicted class changes too;
    #: otherwise the result jumps at some values, next to which rounding decides.
    continuous: ClassVar[bool] = True
    #: `gradient`: any smooth objective; `solver`: a way of its own, and no choice of objective.
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "gradient"
    #: A gradient fit ends with a step that improves the objective by less than this fraction. By
    #: default, what rounding loses; networks crawl along valleys in which nothing is at stake.
    least_gain: ClassVar[float] = 1e-14

    @abstractmethod
    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        """Return what is fitted for K = `classes`."""

    def start(self, classes: int, temperature: float) -> dict[str, NDArray[np.float64]]:
        """Return where a fit by gradient begins; `temperature` is the best single one, by NLL."""
        raise NotImplementedError(f"{self.name} is not fitted by gradient")

    @abstractmethod
    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return calibrated logits or probabilities, as `returns` says."""

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: int) -> Array | float:
        """Return what a fit on `rows` rows adds to the objective, a mean over rows; usually 0."""
        return 0.0

    def stages(self, classes: int) -> tuple[tuple[str, ...], ...]:
        """Return the groups of parameters that are fitted one after another; by default, one."""
        return (tuple(self.parameters(classes)),)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return calibrated probabilities (N, K): non-negative rows that sum to one.

        A class masked by −inf gets exactly 0, and the others share the whole.
        """
        scores, masked = self._guarded(ops, logits, parameters)
        if self.returns == "logits":
            return ops.softmax(scores)
        if masked is None:
            return scores
        kept = ops.where(masked, 0.0, scores)
        return kept / ops.sum(kept)

    def log_probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return log p (N, K); a masked class gets −inf."""
        if self.returns == "logits":
            scores, _ = self._guarded(ops, logits, parameters)
            return ops.log_softmax(scores)
        return ops.log(self.probabilities(ops, logits, parameters))

    def check(self, classes: int, parameters: Parameters) -> None:
        """Raise `CorruptError` unless `parameters` are this map's, for K = `classes`."""
        expected = self.parameters(classes)
        if set(expected) != set(parameters):
            raise CorruptError(
                f"map {self.name} has parameters {sorted(expected)}, found {sorted(parameters)}"
            )
        for name, parameter in expected.items():
            parameter.check(name, parameters[name])

    def _guarded(
        self, ops: Ops, logits: Array, parameters: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """Transform, with masks taken out before and put back after where that is needed."""
        if self.passes_masks:
            return self.transform(ops, logits, parameters), None
        masked = ops.is_masked(logits)
        # The smallest logit that is left: no class is less likely than a masked one, and the
        # number moves with the row, so that a map which ignores shifts still does.
        least = ops.min(ops.where(masked, np.inf, logits))
        scores = self.transform(ops, ops.where(masked, least, logits), parameters)
        if self.returns == "logits":
            scores = ops.where(masked, -np.inf, scores)
        return scores, masked

    @staticmethod
    def constants(ops: Ops, parameters: Parameters) -> dict[str, Any]:
        """Return fitted arrays as arrays of a backend."""
        return {name: ops.constant(value) for name, value in parameters.items()}
