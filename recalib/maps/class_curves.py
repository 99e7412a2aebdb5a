"""A temperature, and a rising curve for each class, of a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.maps.base import Link, Map, Parameter


@dataclass(frozen=True)
class ClassCurves(Map):
    """A map of each class against the rest: curves of the log-odds under softmax(z / T)."""

    #: Of the numbers of each class, (K,), by name.
    links: ClassVar[Mapping[str, Link]]

    preserves_accuracy: ClassVar[bool] = False
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        numbers = {name: Parameter((classes,), link, (0,)) for name, link in self.links.items()}
        return {"temperature": Parameter((), "log"), **numbers}
