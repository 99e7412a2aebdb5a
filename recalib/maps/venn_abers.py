"""Venn-Abers calibration: an interval for each probability, and the probability that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

from recalib.core.field_types import Interval
from recalib.errors import CorruptError, InputError
from recalib.maps.base import ANY_LENGTH, Parameter, Parameters
from recalib.maps.lookup_table import count_edges
from recalib.maps.odds_curve import OddsCurve
from recalib.ops.base import Array, Ops

#: The most steps of a table, and of the tables of all classes: 25 MB.
_MAX_STEPS, _ALL_STEPS = 2**16, 2**20
#: A cell is found by its number in float32, in tables of up to twice as many steps.
_FOUND_STEPS = 2**23


@dataclass(frozen=True)
class VennAbers(OddsCurve):
    """Venn-Abers calibration on top of temperature scaling, q = softmax(z / T).

    A score s is the log-odds of a class in q. Isotonic regression of hits on the scores of the rows
    and one more row at s gives p0 at s if that row is no hit, and p1 if it is one. One of the two
    is the isotonic regression of all rows, the new one too, so of p0 and p1 the one for the true
    label is calibrated if rows are exchangeable, whatever the classifier. The probability is
    p = p1 / (1 − p0 + p1), never 0 or 1: the one whose log loss is least for the worse label.

    - `positive_class`, the default for K = 2: the interval of P(y = 1). T has no effect. It may
      hold ½ and p may cross it, so predictions may change; p never falls with z₁ − z₀ but has ties.
    - `one_vs_rest`, the default for K > 2: the interval of each class, with label k as a hit. Each
      row of p is divided by its sum; intervals are not. The promise holds for each class by
      itself, and up to the one number T, which is fitted to the same rows.

    `folds`: rows are divided at random; each part gives p0 and p1, and 1 − p0 and p1 become their
    geometric means (cross Venn-Abers). The promise is then approximate. T is that of all rows.

    p0 and p1 are exact up to `steps` steps of both; above, neighbouring steps are joined, and the
    interval holds those of each. The default is 65,536, and at most 2²⁰ for all classes together.
    The result jumps at the scores of rows. A score within 2⁻⁴⁰ of a row's is equal to it; within
    2⁻²⁰ if the rows were float32 or had half as many different scores or fewer.

    Parameters, P a power of two that the rows determine: `temperature`, a scalar; `edges`, the
    least log-odds of each step; `log_q0`, log (1 − p0), and `log_p1`, log p1; (P,) each, or a row
    of them for each class.

    Source: Vovk, Petej and Fedorova 2015; one-vs-rest and its sum as in the package venn-abers.
    """

    target: Literal["positive_class", "one_vs_rest"] | None = None
    folds: Annotated[int, Interval(ge=2, le=100)] | None = None
    steps: Annotated[int, Interval(ge=2, le=_MAX_STEPS)] | None = None

    name: ClassVar[str] = "venn_abers"
    summary: ClassVar[str] = "isotonic regression with an interval for each probability"
    several_classes: ClassVar[str] = "one_vs_rest"
    continuous: ClassVar[bool] = False

    def for_classes(self, classes: int) -> Self:
        map = super().for_classes(classes)
        tables = classes if map.target == "one_vs_rest" else 1
        if map.steps is None:
            return replace(map, steps=min(_MAX_STEPS, max(2, _ALL_STEPS // tables)))
        if map.steps * tables > _FOUND_STEPS:
            accepted = f"at most {_FOUND_STEPS // tables} for {classes} classes"
            raise InputError("options.steps", found=f"{map.steps}", accepted=accepted)
        return map

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        rows = () if self.target == "positive_class" else (classes,)
        axes = tuple(range(len(rows)))
        return {
            "temperature": Parameter((), "log"),
            "edges": Parameter((*rows, ANY_LENGTH), "sorted", axes),
            "log_q0": Parameter((*rows, ANY_LENGTH), "log_probability", axes),
            "log_p1": Parameter((*rows, ANY_LENGTH), "log_probability", axes),
        }

    def check(self, classes: int, parameters: Parameters) -> None:
        super().check(classes, parameters)
        lengths = {parameters[name].shape[-1] for name in ("edges", "log_q0", "log_p1")}
        if len(lengths) > 1 or (length := lengths.pop()) < 1 or length & (length - 1):
            raise CorruptError("parameters edges, log_q0 and log_p1 have no common power of two")

    def curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        log_q0, log_p1 = self.bounds(ops, odds, parameters)
        merged = log_p1 - log_q0  # the log-odds of p1 / (1 − p0 + p1)
        return merged if self.target == "positive_class" else ops.log_sigmoid(merged)

    def bounds(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return log (1 − p0) and log p1, in the shape of `odds`."""
        edges = parameters["edges"]
        cell = count_edges(ops, odds, edges, edges.shape[-1], skip=1)
        return ops.gather(parameters["log_q0"], cell), ops.gather(parameters["log_p1"], cell)
