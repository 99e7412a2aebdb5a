"""docs/data.md lists all fields, sources, networks, augmentations and corruptions."""

from __future__ import annotations

import re
from pathlib import Path

from docs import reference_members
from training.data import SOURCES, DataSpec
from training.data.augmentation import AUGMENTATIONS
from training.data.corruption import CORRUPTIONS
from training.models import MODELS

_TEXT = (Path(__file__).parents[3] / "docs" / "data.md").read_text()


def _names(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def test_every_source_and_network_is_named() -> None:
    sections = re.split(r"^##+ ", _TEXT, flags=re.MULTILINE)
    (sources,) = (text for text in sections if text.startswith("Sources\n"))
    assert {*SOURCES} <= {*_names(sources)}
    (networks,) = (text for text in sections if text.startswith("Networks\n"))
    assert {*MODELS} <= {*_names(networks)}


def test_site_has_fields_sources_and_networks_with_their_options() -> None:
    page = reference_members.training_data()
    assert "| `source` | required | " in page
    assert "| `stratified` | `true` | " in page
    assert "| `shapes` | `train`, `validation`, `test`, `size`, `noise`, `seed` | " in page
    assert "| `linear` | `features`, `offsets` | " in page
    assert re.search(r"^\| `resnet20` \| .* Here: depth 20. \|$", page, re.MULTILINE)
    first = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {*SOURCES, *MODELS, *DataSpec.__struct_fields__} == first


def test_every_augmentation_and_corruption() -> None:
    for header, family in (("Augmentations", AUGMENTATIONS), ("For evaluation", CORRUPTIONS)):
        paragraph = re.split(r"\n\n", _TEXT.split(f"\n{header}")[1])[0]
        assert [name for name in _names(paragraph) if name in family] == list(family)
