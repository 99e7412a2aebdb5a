"""The contract of a post-hoc calibration map.

A map turns the logits z (N, K) of a fixed classifier into calibrated probabilities (N, K). It is an
immutable dataclass whose fields are its options. Its fitted numbers are a separate dictionary of
named arrays (`Parameters`). A map defines

- `parameters(classes)`: the name, shape and legal range of each fitted array;
- `start(classes, temperature)`: the start of a fit, from the best single temperature;
- `transform(ops, z, parameters)`: the formula, in the operations of `recalib.ops`;
- flags for its properties, which the contract test checks;
- optionally `penalty`: a term that a fit adds to its objective.

Most maps are fitted by gradient with any objective. The others have their own solver
(`fitted_by = "solver"`, see `recalib.fitting.solvers`), which defines what it minimises.

Logits and labels are not checked here; `recalib.core.arrays` checks them once at the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.core.field_types import check_fields
from recalib.errors import CorruptError
from recalib.ops.base import Array, Ops

Parameters = Mapping[str, NDArray[np.float64]]

#: The legal range of a parameter, and the scale on which a fit moves it. `log`: positive, moved as
#: its logarithm. `simplex`: non-negative numbers divided by their sum. `real`: any number.
#: `probability`: in [0, 1]. `ascending`: in [0, 1] and never falling along the last axis. `rising`:
#: each number at least `STEP` above the previous one along the last axis. `sorted`: never falling
#: along the last axis. `log_probability`: at most 0.
Link = Literal[
    "log", "simplex", "real", "probability", "ascending", "rising", "sorted", "log_probability"
]  # fmt: skip

#: The smallest distance between edges or knots of a table: float32 can distinguish them, and no
#: width is 0.
STEP = 1e-3
#: In the shape of a parameter.
ANY_LENGTH = 0


@dataclass(frozen=True)
class Parameter:
    """The shape and the legal range of a fitted array.

    Examples
    --------
    >>> from recalib.maps import MAPS
    >>> MAPS["temperature"]().parameters(classes=3)["temperature"].shape
    ()
    """

    #: `ANY_LENGTH` stands for one that the rows of a fit determine.
    shape: tuple[int, ...]
    link: Link
    #: The axes of classes, which are permuted together with the classes.
    class_axes: tuple[int, ...] = ()

    def check(self, name: str, value: NDArray[np.float64]) -> None:
        """Raise `CorruptError` unless `value` has this shape and range."""
        lengths = np.array(self.shape)
        is_legal = value.ndim == len(lengths) and np.all(
            (lengths == value.shape) | (lengths == ANY_LENGTH)
        )
        if not is_legal:
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
        if self.link == "sorted" and (np.diff(value) < 0).any():
            raise CorruptError(f"parameter {name} is not ascending")
        if self.link == "log_probability" and (value > 0).any():
            raise CorruptError(f"parameter {name} is not a logarithm in (−inf, 0]")
        if self.link == "rising" and (np.diff(value) < STEP * (1 - 1e-6)).any():
            raise CorruptError(f"parameter {name} is not rising by {STEP} a step")


@dataclass(frozen=True)
class Map(ABC):
    """A family of functions from logits to probabilities.

    Examples
    --------
    >>> from recalib.maps import MAPS
    >>> MAPS["temperature"]().parameters(classes=3)
    {'temperature': Parameter(shape=(), link='log', class_axes=())}
    """

    #: The name in the registry, in cards and on the command line.
    name: ClassVar[str]
    #: One line for `--help` and reports.
    summary: ClassVar[str]
    #: What `transform` returns: `logits` still need a softmax, `probabilities` do not.
    returns: ClassVar[Literal["logits", "probabilities"]] = "logits"
    #: True if the map never changes the predicted class, for any parameters.
    preserves_accuracy: ClassVar[bool]
    #: True if for K = 2 every fit makes P(y = 1) strictly increase with z₁ − z₀ everywhere: the
    #: order of rows by P(y = 1) stays, and with it ROC AUC. A map that only never decreases makes
    #: ties, so it does not have this property.
    preserves_order: ClassVar[bool] = False
    #: True if adding a number to a row of logits changes nothing.
    shift_invariant: ClassVar[bool]
    #: True if `transform` handles −inf: each class is computed from its own logit, and −inf stays
    #: −inf. Other maps receive a finite number instead.
    passes_masks: ClassVar[bool]
    #: True if the result is continuous in the logits as long as the predicted class is the same.
    #: Otherwise it jumps at some values, where float32 and float64 may differ.
    continuous: ClassVar[bool] = True
    #: `gradient`: fitted with any objective; `solver`: fitted by its own solver, without a choice.
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "gradient"
    #: The most classes that a fit takes; None for any number.
    max_classes: ClassVar[int | None] = None
    #: A gradient fit ends with a step that improves the objective by less than this fraction. The
    #: default is rounding error; networks use more, since they improve slowly in flat valleys.
    least_gain: ClassVar[float] = 1e-14
    #: Options that older cards do not have, with the value that they stand for.
    older_options: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        """Return the fitted arrays for K = `classes`, by name."""

    def for_classes(self, classes: int) -> Map:
        """Return the map that is fitted to K = `classes`: options left None get their default.

        Raises
        ------
        InputError: an option that this K does not have.
        """
        return self

    def tie_classes(self, parameters: Parameters) -> Parameters:
        """Return the parameters of K = 2 that depend on the log-odds z₁ − z₀ alone.

        On centred logits (−d/2, d/2) the result is that of `parameters`.
        """
        return parameters

    def start(self, classes: int, temperature: float) -> Parameters:
        """Return the start of a gradient fit; `temperature` is the best single one by NLL.

        Not abstract: a map with `fitted_by = "solver"` has no such start.

        Raises
        ------
        NotImplementedError: the map is not fitted by gradient.
        """
        raise NotImplementedError(f"{self.name} is not fitted by gradient")

    @abstractmethod
    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return calibrated logits or probabilities, as stated by `returns`."""

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: float) -> Array | float:
        """Return the penalty that a fit adds to the mean objective; usually 0.

        `rows` is the effective number of rows, see `recalib.core.arrays.check_weights`.
        """
        return 0.0

    def stages(self, classes: int) -> tuple[tuple[str, ...], ...]:
        """Return the groups of parameters that are fitted in sequence; by default one group."""
        return (tuple(self.parameters(classes)),)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return calibrated probabilities (N, K): non-negative rows that sum to one.

        A class masked by −inf gets exactly 0.
        """
        scores, masked = self._transform_unmasked(ops, logits, parameters)
        if self.returns == "logits":
            return ops.softmax(scores)
        if masked is None:
            return scores
        unmasked = ops.where(masked, 0.0, scores)
        return unmasked / ops.sum(unmasked)

    def log_probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return log p (N, K); a masked class gets −inf."""
        if self.returns == "logits":
            scores, _ = self._transform_unmasked(ops, logits, parameters)
            return ops.log_softmax(scores)
        return ops.log(self.probabilities(ops, logits, parameters))

    def check(self, classes: int, parameters: Parameters) -> None:
        """Raise `CorruptError` unless `parameters` are legal for this map and K = `classes`."""
        expected = self.parameters(classes)
        if set(expected) != set(parameters):
            raise CorruptError(
                f"map {self.name} has parameters {sorted(expected)}, found {sorted(parameters)}"
            )
        for name, parameter in expected.items():
            parameter.check(name, parameters[name])

    def _transform_unmasked(
        self, ops: Ops, logits: Array, parameters: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """Transform, replacing masked logits before and restoring the mask after if needed."""
        if self.passes_masks:
            return self.transform(ops, logits, parameters), None
        masked = ops.is_masked(logits)
        # The smallest unmasked logit of the row shifts with the row, so a shift-invariant map stays
        # shift invariant.
        least = ops.min(ops.where(masked, np.inf, logits))
        scores = self.transform(ops, ops.where(masked, least, logits), parameters)
        if self.returns == "logits":
            scores = ops.where(masked, -np.inf, scores)
        return scores, masked

    @staticmethod
    def constants(ops: Ops, parameters: Parameters) -> dict[str, Any]:
        """Return fitted arrays as constants of a backend."""
        return {name: ops.constant(value) for name, value in parameters.items()}
