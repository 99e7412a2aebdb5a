"""Calibrators as torch modules, with gradients, `torch.export` and `torch.compile`.

`Calibrator.to_torch` returns a `CalibratorModule`; `CalibratedModule` puts it behind a classifier.
Both need torch, which `recalib[fit]` installs.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from recalib.core.arrays import SMALLEST_PROBABILITY
from recalib.core.card import PredictionSets, Rejection
from recalib.core.masks import Mask
from recalib.core.packages import optional_packages
from recalib.errors import InputError
from recalib.maps import Map
from recalib.maps.venn_abers import VennAbers
from recalib.sets.conformal import set_members
from recalib.sets.rejection import accepted_rows
from recalib.sets.venn_abers import intervals

with optional_packages("recalib.torch"):
    import torch

    from recalib.ops.torch_ops import TorchOps

if TYPE_CHECKING:
    import numpy as np

    from recalib.calibrator import Calibrator

__all__ = ["CalibratedModule", "CalibratorModule"]

_NARROW = (torch.float16, torch.bfloat16)


class CalibratorModule(torch.nn.Module):
    """A fitted map as a module: logits (..., K) to calibrated probabilities (..., K).

    The fitted arrays are buffers in float64, under their names in `Calibrator.parameters`, in the
    child `arrays`; so they are in `state_dict()`, move with `to(device)` and are not trained.
    `half()` and `bfloat16()` leave them unchanged, because rounded parameters are another
    calibrator. `float()` rounds them to float32, for devices without float64.

    float64 values are computed in float64, all others in float32, also inside `torch.autocast`. The
    result has the dtype of the computation and agrees with `Calibrator.predict`. It is
    differentiable in the values. Shapes and dtypes are checked; the values themselves are not,
    since a check would stop a compiled graph: NaN gives NaN.

    Parameters
    ----------
    the_map, classes, parameters: the map, K, and its fitted arrays.
    input: whether values are logits (−inf masks a class) or probabilities, whose logarithms are
        clipped at 1e-38.
    mask: the rule of logits that stand for −inf, in `Card.mask`.
    sets, rejection: the thresholds of `predict_set` and `is_accepted`, in the card.

    Raises
    ------
    CorruptError: parameters that are illegal for the map.

    Examples
    --------
    >>> import torch
    >>> module = calibrator.to_torch()
    >>> module(torch.tensor(new_logits)).shape
    torch.Size([400, 3])
    """

    def __init__(
        self,
        the_map: Map,
        classes: int,
        parameters: Mapping[str, NDArray[np.float64]],
        *,
        input: Literal["logits", "probabilities"] = "logits",
        mask: Mask | None = None,
        sets: PredictionSets | None = None,
        rejection: Rejection | None = None,
    ) -> None:
        super().__init__()
        the_map.check(classes, parameters)
        self.map = the_map
        self.classes = classes
        self.input = input
        self.mask = mask
        self.sets = sets
        self.rejection = rejection
        self.arrays = _Arrays(parameters)

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Return probabilities (..., K): non-negative rows that sum to one.

        Parameters
        ----------
        logits: (..., K), or probabilities if these are the module's `input`.

        Raises
        ------
        InputError: another last dimension than K, or no floating-point tensor.
        """
        return self._apply_map(self.map.probabilities, logits)

    def log_probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return log p (..., K), exact where p is too small to be stored; −inf for a masked class.

        Raises
        ------
        InputError: as for calls.
        """
        return self._apply_map(self.map.log_probabilities, logits)

    def predict_set(self, logits: torch.Tensor) -> torch.Tensor:
        """Return whether each class is in the prediction set of a row, bool (..., K).

        Raises
        ------
        InputError: a calibrator without thresholds, or as for calls.
        """
        sets = self.sets
        if sets is None:
            accepted = "one fitted with sets=, or by fit_sets"
            raise InputError("calibrator", found="no prediction sets", accepted=accepted)

        def members(ops: TorchOps, z: torch.Tensor, parameters: Any) -> torch.Tensor:
            p, wide = self.map.probabilities(ops, z, parameters), TorchOps(device=z.device)
            return set_members(wide, p, ops.is_masked(z), self.classes, sets)

        return self._apply_map(members, logits)

    def is_accepted(self, logits: torch.Tensor) -> torch.Tensor:
        """Return whether the confidence of a row reaches the threshold of rejection, bool (...).

        Raises
        ------
        InputError: a calibrator without this threshold, or as for calls.
        """
        rejection = self.rejection
        if rejection is None:
            accepted = "one fitted with max_risk=, or by fit_rejection"
            raise InputError("calibrator", found="no threshold of rejection", accepted=accepted)

        def reach(ops: TorchOps, z: torch.Tensor, parameters: Any) -> torch.Tensor:
            p = self.map.probabilities(ops, z, parameters)
            return accepted_rows(TorchOps(device=z.device), p, rejection)

        return self._apply_map(reach, logits)[..., 0]

    def predict_interval(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the Venn-Abers interval [p0, p1] of each probability, (..., K, 2).

        Raises
        ------
        InputError: another map than `venn_abers`, or as for calls.
        """
        the_map = self.map
        if not isinstance(the_map, VennAbers):
            accepted = "a calibrator of the map venn_abers"
            raise InputError("calibrator", found=f"the map {the_map.name}", accepted=accepted)
        return self._apply_map(
            lambda ops, z, parameters: intervals(ops, the_map, z, parameters), logits
        )

    def extra_repr(self) -> str:
        return f"{self.map.name}, classes={self.classes}, input={self.input}"

    def _apply_map(
        self, formula: Callable[..., torch.Tensor], values: torch.Tensor
    ) -> torch.Tensor:
        if not isinstance(values, torch.Tensor):
            raise InputError("logits", found=type(values).__name__, accepted="a tensor")
        if not values.is_floating_point():
            raise InputError("logits", found=f"dtype {values.dtype}", accepted="floating point")
        if values.ndim == 0 or values.shape[-1] != self.classes:
            raise InputError(
                "logits", found=f"shape {tuple(values.shape)}", accepted=f"(..., {self.classes})"
            )
        kind = values.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return self._compute(formula, values)
        return self._compute(formula, values)

    def _compute(self, formula: Callable[..., torch.Tensor], values: torch.Tensor) -> torch.Tensor:
        dtype = torch.promote_types(values.dtype, torch.float32)
        logits = values.to(dtype).reshape(-1, self.classes)
        if self.input == "probabilities":
            logits = torch.log(torch.clamp(logits, min=SMALLEST_PROBABILITY))
        ops = TorchOps(dtype, values.device)
        if self.mask is not None:
            logits = self.mask.apply(ops, logits)
        parameters = {name: value.to(dtype) for name, value in self.arrays.named_buffers()}
        result = formula(ops, logits, parameters)
        return result.reshape(*values.shape[:-1], *result.shape[1:])


class _Arrays(torch.nn.Module):
    """The fitted arrays as buffers, in a module without names that could be theirs."""

    def __init__(self, parameters: Mapping[str, NDArray[np.float64]]) -> None:
        super().__init__()
        for name, value in parameters.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> _Arrays:
        """Apply a conversion of `torch.nn.Module`, without rounding the arrays to 16 bits."""
        exact = dict(self.named_buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in exact.items():
            converted = self.get_buffer(name)
            if converted.dtype in _NARROW:
                setattr(self, name, value.to(converted.device))
        return self


class CalibratedModule(torch.nn.Module):
    """A classifier followed by its calibrator.

    Parameters
    ----------
    model: the classifier. Its output is a tensor of what the calibrator was fitted on, (..., K), or
        an object with the attribute `logits`, as models of Hugging Face return.
    calibrator: fitted on outputs of `model`.
    output: a function that takes the tensor out of any other output of `model`.

    Raises
    ------
    InputError: in a call, an output without a tensor of (..., K).

    Examples
    --------
    >>> import torch
    >>> from recalib.torch import CalibratedModule
    >>> calibrated = CalibratedModule(torch.nn.Linear(5, 3), calibrator).eval()
    >>> calibrated(torch.zeros(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        model: torch.nn.Module,
        calibrator: Calibrator,
        *,
        output: Callable[[Any], torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.calibrator = calibrator.to_torch()
        self._output = _tensor_of if output is None else output

    def forward(self, x: Any = None, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return calibrated probabilities (..., K) of the classifier's output for its arguments.

        The first has a name, because `dynamic_shapes` of `torch.export` and tensors of a graph of
        `torch.onnx.export` have the names of arguments.
        """
        inputs = args if x is None and not args else (x, *args)
        return self.calibrator(self._output(self.model(*inputs, **kwargs)))


def _tensor_of(output: Any) -> torch.Tensor:
    tensor = getattr(output, "logits", output)
    if not isinstance(tensor, torch.Tensor):
        raise InputError(
            "model",
            found=f"an output of type {type(output).__name__}",
            accepted="a tensor, or an object with the attribute logits; for others, write "
            "output=: a function from the output to the tensor",
        )
    return tensor
