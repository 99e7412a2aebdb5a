"""Maps of independent labels: each label has its own probability, and rows need no sum of 1.

A label map turns the log-odds z (N, K) of K labels into calibrated log-odds. Column k depends on
column k alone, by a rising function with its own fitted numbers. The probability of label k is
σ(score_k); a row may have any number of labels, so its probabilities have no fixed sum.

A new map is one class here and one line in `LABEL_MAPS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from recalib.core.field_types import Interval
from recalib.maps.base import Link, Map, Parameter
from recalib.maps.beta import Beta
from recalib.maps.lookup_table import interpolate, next_power_of_two
from recalib.maps.one_vs_rest import numbers_of_columns
from recalib.ops.base import Array, Ops

__all__ = ["LABEL_MAPS", "LabelMap"]


@dataclass(frozen=True)
class LabelMap(Map):
    """A family of functions from log-odds (N, K) to calibrated log-odds (N, K)."""

    #: The set of labels with a probability above 1/2 may change.
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False
    #: Log-odds of labels are finite, so there are no masks.
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"
    #: Of the numbers of each label, (K,), by name.
    links: ClassVar[Mapping[str, Link]] = {}

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return numbers_of_columns(self.links, classes)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return the probability of each label (N, K), in [0, 1]."""
        return ops.exp(self.log_probabilities(ops, logits, parameters))

    def log_probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        """Return the logarithm of the probability of each label (N, K)."""
        return ops.log_sigmoid(self.transform(ops, logits, parameters))


@dataclass(frozen=True)
class LabelIdentity(LabelMap):
    """σ(z_k): the probabilities as they are."""

    name: ClassVar[str] = "identity"
    summary: ClassVar[str] = "no change"

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits


@dataclass(frozen=True)
class LabelTemperature(LabelMap):
    """Temperature scaling of each label: σ(z_k / T_k), fitted by likelihood.

    A probability of 1/2 stays 1/2, so the set of labels above 1/2 never changes; a label that is
    too frequent or too rare on average needs `platt`.

    Parameters: `temperature` (K,), in units of the logits.

    Source: Guo et al. 2017, for two classes, label by label.
    """

    name: ClassVar[str] = "temperature"
    summary: ClassVar[str] = "a temperature for each label"
    links: ClassVar[Mapping[str, Link]] = {"temperature": "log"}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits / parameters["temperature"]


@dataclass(frozen=True)
class LabelPlatt(LabelMap):
    """Platt scaling of each label: σ(a_k z_k + b_k), a > 0.

    Each label is fitted by likelihood with the penalty ½ ((a − 1)² + b² / 4), which weighs as much
    as one row and favours no change; with it separable rows have a solution.

    Parameters: `slope` (K,), a; `bias` (K,), b, in nats.

    Source: Platt 1999 (there without this penalty, and with smoothed targets).
    """

    name: ClassVar[str] = "platt"
    summary: ClassVar[str] = "a slope and an intercept for each label"
    links: ClassVar[Mapping[str, Link]] = {"slope": "log", "bias": "real"}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits * parameters["slope"] + parameters["bias"]


@dataclass(frozen=True)
class LabelBeta(LabelMap):
    """Beta calibration of each label: σ(a_k ln p_k − b_k ln(1 − p_k) + c_k), p = σ(z), a, b > 0.

    a = b is Platt scaling. The penalty of the fit is that of `recalib.maps.beta.Beta`, the curve
    for several classes.

    Parameters: `low` (K,), a, which bends the curve near p = 0; `high` (K,), b, near p = 1;
    `bias` (K,), c, in nats.

    Source: Kull, Silva Filho & Flach 2017, eq. 3.
    """

    name: ClassVar[str] = "beta"
    summary: ClassVar[str] = "a curve of three numbers for each label"
    links: ClassVar[Mapping[str, Link]] = Beta.links

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        log_p, log_q = ops.log_sigmoid(logits), ops.log_sigmoid(0.0 - logits)
        return log_p * parameters["low"] - log_q * parameters["high"] + parameters["bias"]


@dataclass(frozen=True)
class LabelIsotonic(LabelMap):
    """Isotonic calibration of each label: a rising, piecewise linear curve of its log-odds.

    Blocks, their smoothing and the limit of the slope are those of `recalib.maps.isotonic.Isotonic`
    with `one_vs_rest`. A curve has at most `knots` blocks.

    Parameters, P the next power of two from `knots`: `knots` and `values` (K, P + 1), log-odds
    before and after.

    Source: Zadrozny & Elkan 2002. Smoothing and interpolation are added here.
    """

    knots: Annotated[int, Interval(ge=2, le=256)] = 64

    name: ClassVar[str] = "isotonic"
    summary: ClassVar[str] = "a rising curve for each label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        shape = (classes, next_power_of_two(self.knots) + 1)
        return {
            "knots": Parameter(shape, "rising", (0,)),
            "values": Parameter(shape, "real", (0,)),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        cells = next_power_of_two(self.knots)
        return interpolate(ops, logits, parameters["knots"], parameters["values"], cells)


#: The maps of multilabel problems by name.
LABEL_MAPS: dict[str, type[LabelMap]] = {
    "identity": LabelIdentity,
    "temperature": LabelTemperature,
    "platt": LabelPlatt,
    "beta": LabelBeta,
    "isotonic": LabelIsotonic,
}
