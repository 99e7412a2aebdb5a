"""A picture that shows itself in a notebook, saves itself, and gives its specification."""

from __future__ import annotations

import json
import os
from typing import Any

from altair.typing import ChartType

from recalib.reporting.plots.save import save, to_svg


class Picture:
    """A picture of calibration.

    A notebook shows it as SVG, which needs no network.

    Parameters
    ----------
    chart: the Altair chart.
    """

    def __init__(self, chart: ChartType) -> None:
        #: The Altair chart, for further changes.
        self.chart = chart

    def __repr__(self) -> str:
        return f"<Picture {type(self.chart).__name__}>"

    def __eq__(self, other: object) -> bool:
        """Return whether the specifications are equal."""
        if not isinstance(other, Picture):
            return NotImplemented
        return self.specification == other.specification

    __hash__ = None  # type: ignore[assignment]

    @property
    def specification(self) -> dict[str, Any]:
        """The Vega-Lite specification."""
        return dict(json.loads(self.chart.to_json(indent=None)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture: `.png`, `.svg`, `.html` that works offline, or `.json`.

        Raises
        ------
        InputError: another suffix, or the file cannot be written.
        """
        save(self.chart, path)

    def _repr_svg_(self) -> str:
        return to_svg(self.specification)
