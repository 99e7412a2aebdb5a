"""docs/data.md lists all fields, sources, networks, augmentations and corruptions."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import msgspec

from training.data import AUGMENTATIONS, SOURCES, DataSpec
from training.data.corruption import CORRUPTIONS
from training.models import MODELS, _options

_TEXT = (Path(__file__).parents[3] / "docs" / "data.md").read_text()


def _rows(header: str) -> dict[str, str]:
    """Return the second cell of each row of the table with this header, by name."""
    table = _TEXT.split(f"| {header} |")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*)\|", table, re.MULTILINE))


def _names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_field_with_its_default() -> None:
    listed = {name: cell.strip() for name, cell in _rows("field").items()}
    for field in msgspec.structs.fields(DataSpec):
        documented = {"": msgspec.NODEFAULT, "none": None, "true": True}.get(
            listed.pop(field.name), 0
        )
        default = {} if field.default_factory is not msgspec.NODEFAULT else field.default
        assert (documented or {}) == (default or {}), field.name
    assert not listed


def test_every_source_with_its_options() -> None:
    listed = {name: _names(cell) for name, cell in _rows("source").items()}
    options = {name: [option.name for option in fields(kind)] for name, kind in SOURCES.items()}  # type: ignore[arg-type]
    assert listed == options


def test_every_network_with_its_options() -> None:
    listed = {name: sorted(_names(cell)) for name, cell in _rows("name").items()}
    assert listed == {name: sorted(_options(make)) for name, make in MODELS.items()}


def test_every_augmentation_and_corruption() -> None:
    for header, family in (("Augmentations", AUGMENTATIONS), ("For evaluation", CORRUPTIONS)):
        paragraph = re.split(r"\n\n", _TEXT.split(f"\n{header}")[1])[0]
        assert [name for name in _names(paragraph) if name in family] == list(family)
