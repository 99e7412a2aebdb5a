"""A stack: several maps whose predictions are pooled with fixed weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from recalib.core.field_types import Interval
from recalib.core.options import configure, options_of
from recalib.errors import InputError
from recalib.maps.base import Map, Parameter, Parameters
from recalib.ops.base import Array, Ops

#: A probability in a pool of logarithms is at least this: float32 has none that is smaller.
_LEAST = 1e-38
#: The weights may differ from a sum of 1 by rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Member:
    """A member of a stack: the name of a map, its weight in (0, 1], and the map's options."""

    map: str
    weight: float
    options: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.map, self.weight, json.dumps(self.options, sort_keys=True)))


@dataclass(frozen=True)
class Stack(Map):
    """A stack: the predictions p_m of several maps, pooled with weights w_m > 0 that sum to 1.

    - `pool` = `linear`: the mixture p = Σ w_m p_m.
    - `pool` = `logarithmic`: p ∝ Π p_m^w_m, the softmax of Σ w_m log p_m, where log p_m is at
      least log 1e-38.

    Before that, `smoothing` ε > 0 mixes the classifier's probabilities with the uniform ones of the
    unmasked classes: members take the logits log((1 − ε) softmax(z) + ε / K). So a forest's
    probability of exactly 0 does not decide the fit of every other row.

    After that, `class_weight` c, (K,), divides the probability of each class by c_k, and each row
    by its sum; members are fitted to rows whose weights are multiplied by c_y. So a classifier that
    was trained with these weights of classes is calibrated for the rows that it is used on.

    Each member is fitted by itself to all rows. The policy `auto` chooses members and weights by
    their predictions of held-out rows, see `recalib.fitting.auto`; by hand, both are options.

    If no member changes predictions, the stack changes none without `class_weight`; if each member
    keeps the order of rows by P(y = 1), so does the stack; if each is invariant to a shift of the
    logits, so is the stack.

    Parameters: those of each member, under its map's name and its place: `vector_1_scale` is the
    `scale` of the second member, a `vector`.

    Options: `members`, each with the name of its `map`, its `weight` and its `options`; `pool`;
    `smoothing` in [0, 1); `class_weight`, positive, or none. A
    weight that is not positive, another sum than 1 and a stack as a member are an `InputError`.

    Applying it takes the sum of the members' times.

    Source: stacking with non-negative weights, Breiman 1996; the linear and the logarithmic pool,
    Genest & Zidek 1986; class weights: Saerens et al. 2002, eq. 2.4.
    """

    members: tuple[Member, ...] = (Member("temperature", 0.5), Member("vector", 0.5))
    pool: Literal["linear", "logarithmic"] = "linear"
    smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    class_weight: tuple[float, ...] = ()

    name: ClassVar[str] = "stack"
    summary: ClassVar[str] = "the predictions of several maps, pooled with weights"
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = self.weights
        if min(weights, default=0.0) <= 0 or abs(sum(weights) - 1) > _ROUNDING:
            found = f"weights {', '.join(f'{weight:g}' for weight in weights)}"
            accepted = "positive weights that sum to 1"
            raise InputError("options.members", found=found, accepted=accepted)
        if any(member.map == self.name for member in self.members):
            raise InputError("options.members", found="a stack", accepted="other maps")
        if not all(0 < weight < np.inf for weight in self.class_weight):
            found = ", ".join(f"{weight:g}" for weight in self.class_weight[:5])
            raise InputError("options.class_weight", found=found, accepted="positive numbers")
        # A card names all options of the members; unknown ones raise InputError.
        members = tuple(
            map(Member, (m.map for m in self.members), weights, map(options_of, self.maps))
        )
        object.__setattr__(self, "members", members)

    @property
    def weights(self) -> tuple[float, ...]:
        """The members' weights."""
        return tuple(member.weight for member in self.members)

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """The members' maps with their options."""
        from recalib.maps import MAPS  # which imports this module

        return tuple(
            configure(MAPS, member.map, member.options, field="options.members")
            for member in self.members
        )

    @property
    def returns(self) -> Literal["logits", "probabilities"]:  # type: ignore[override]
        return "probabilities" if self.pool == "linear" else "logits"

    @property
    def preserves_accuracy(self) -> bool:  # type: ignore[override]
        return not self.class_weight and all(map.preserves_accuracy for map in self.maps)

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        return self.smoothing > 0 or all(map.shift_invariant for map in self.maps)

    @property
    def preserves_order(self) -> bool:  # type: ignore[override]
        return all(map.preserves_order for map in self.maps)

    @property
    def passes_masks(self) -> bool:  # type: ignore[override]
        return all(map.passes_masks for map in self.maps)

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        return all(map.continuous for map in self.maps)

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return self.join([map.parameters(classes) for map in self.maps])

    def for_classes(self, classes: int) -> Map:
        if self.class_weight and len(self.class_weight) != classes:
            found = f"{len(self.class_weight)} numbers"
            raise InputError("options.class_weight", found=found, accepted=f"{classes}")
        maps = (map.for_classes(classes) for map in self.maps)
        members = (
            Member(member.map, member.weight, options_of(map))
            for member, map in zip(self.members, maps, strict=True)
        )
        return replace(self, members=tuple(members))

    def tie_classes(self, parameters: Parameters) -> Parameters:
        of_members = zip(self.maps, self.split(parameters), strict=True)
        return self.join([map.tie_classes(own) for map, own in of_members])

    def join(self, of_members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the members' dictionaries by parameter as one."""
        return {
            f"{prefix}{name}": value
            for prefix, values in zip(self._prefixes, of_members, strict=True)
            for name, value in values.items()
        }

    def split(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the dictionary by parameter of each member: the inverse of `join`."""
        return [
            {
                name.removeprefix(prefix): value
                for name, value in parameters.items()
                if name.startswith(prefix)
            }
            for prefix in self._prefixes
        ]

    @property
    def _prefixes(self) -> list[str]:
        return [f"{member.map}_{i}_" for i, member in enumerate(self.members)]

    def check(self, classes: int, parameters: Parameters) -> None:
        super().check(classes, parameters)
        for map, own in zip(self.maps, self.split(parameters), strict=True):
            map.check(classes, own)

    def smooth(self, ops: Ops, logits: Array) -> Array:
        """Return the logits (N, K) that the members take; a masked class stays −inf."""
        if self.smoothing == 0:
            return logits
        unmasked = ops.unmasked(logits)
        uniform = unmasked * (1.0 / ops.sum(unmasked))
        return ops.log(ops.softmax(logits) * (1 - self.smoothing) + uniform * self.smoothing)

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        logits = self.smooth(ops, logits)
        is_linear = self.pool == "linear"
        terms = [
            self._term(ops, logits, map, own, is_linear)
            for map, own in zip(self.maps, self.split(parameters), strict=True)
        ]
        pooled = ops.weighted_sum(ops.constant(np.array(self.weights)), terms)
        if not self.class_weight:
            return pooled
        weights = np.array(self.class_weight)
        if not is_linear:
            return pooled - ops.constant(np.log(weights))
        shares = pooled * ops.constant(weights.min() / weights)
        return shares / ops.sum(shares)

    @staticmethod
    def _term(
        ops: Ops, logits: Array, map: Map, parameters: Mapping[str, Array], is_linear: bool
    ) -> Any:
        """Return a function that computes a member's term of the pool."""
        if is_linear:
            # The base class's formula has finite gradients in torch where a class is masked.
            return lambda: Map.probabilities(map, ops, logits, parameters)
        if map.returns == "logits":
            return lambda: map.log_probabilities(ops, logits, parameters)

        def logarithms() -> Array:
            p = map.probabilities(ops, logits, parameters)
            return ops.where(ops.is_masked(logits), -np.inf, ops.log(ops.clip_min(p, _LEAST)))

        return logarithms

    def _transform_unmasked(
        self, ops: Ops, logits: Array, parameters: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        return self.transform(ops, logits, parameters), None  # members handle masks
