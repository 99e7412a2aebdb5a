"""Save a plot as PNG, SVG, an HTML page, or the specification itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from altair.typing import ChartType

from recalib.errors import InputError
from recalib.files import write_atomically

_SUFFIXES = (".png", ".svg", ".html", ".json")
#: vl-convert names versions without the patch number: Altair's v6.4.1 is v6.4.
_VERSION = str(alt.SCHEMA_VERSION.rpartition(".")[0])

#: A page without scripts, which a strict content security policy displays.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Calibration</title>
<style>svg {{ max-width: 100%; height: auto; }}</style>
</head>
<body>{svg}</body>
</html>
"""


def check_suffix(path: str | os.PathLike[str], field: str = "diagram") -> None:
    """Raise `InputError` for a file name that `save` would reject; call it before long work."""
    suffix = Path(path).suffix
    if suffix.lower() not in _SUFFIXES:
        raise InputError(field, found=suffix or "no suffix", accepted=", ".join(_SUFFIXES))


def save(chart: ChartType, path: str | os.PathLike[str]) -> None:
    """Write `chart` atomically, in the format of the path's suffix.

    Formats: `.png` at double resolution, `.svg`, `.html` with the SVG and without scripts, or
    `.json` with the specification.

    Raises
    ------
    InputError: the suffix is unknown, or the file cannot be written.
    """
    check_suffix(path)
    write_atomically(Path(path), _render(chart, Path(path).suffix.lower()))


def to_svg(specification: dict[str, Any]) -> str:
    """Return the plot of a Vega-Lite specification as an SVG element."""
    return str(vl_convert.vegalite_to_svg(specification, vl_version=_VERSION))


def _render(chart: ChartType, suffix: str) -> bytes:
    specification = chart.to_json(indent=None)
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(specification, vl_version=_VERSION, scale=2))
    if suffix == ".svg":
        return to_svg(chart.to_dict()).encode()
    if suffix == ".html":
        return _PAGE.format(svg=to_svg(chart.to_dict())).encode()
    return (specification + "\n").encode()
