"""What Recalib is made of: pinned, as it was tested, and under licences that somebody has read."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name

from tests.supply import licences
from tests.supply.requirements import ROOT, direct, needed, pins

#: What installs the rest, and what torch needs where there is a GPU: `make constraints` sees to it.
_NOT_SEEN_HERE = re.compile(r"uv|triton|(nvidia|cuda)-.*")


@pytest.mark.parametrize("requirement", direct(), ids=lambda one: one.name)
def test_every_requirement_has_a_pin_that_it_allows(requirement: object) -> None:
    """Else `pip install -c constraints.txt` takes whatever there is, or cannot be done at all."""
    pin = pins()[canonicalize_name(requirement.name)]  # type: ignore[attr-defined]
    (exact,) = pin.specifier
    assert exact.operator == "=="
    assert requirement.specifier.contains(exact.version, prereleases=True)  # type: ignore[attr-defined]


def test_all_that_is_needed_is_pinned() -> None:
    """What requirements require as well; and nothing is pinned that is not needed."""
    pinned, here = set(pins()), set(needed())
    assert here - pinned == set()
    assert [one for one in pinned - here if not _NOT_SEEN_HERE.fullmatch(one)] == []


def test_what_is_installed_is_what_is_pinned() -> None:
    """So that tests say something about what others install."""
    differing = {
        name: (package.version, str(pins()[name].specifier))
        for name, package in needed().items()
        if name in pins() and not pins()[name].specifier.contains(package.version, prereleases=True)
    }
    assert differing == {}


def test_licences() -> None:
    """Each is known, and none asks for more than that its package stays what it is."""
    found = {name: licences.licence_of(package) for name, package in needed().items()}
    assert len(found) > 100
    assert {name: one for name, one in found.items() if licences.refused(name, one)} == {}


@pytest.mark.parametrize(
    ("name", "licence", "refused"),
    [
        ("x", "MIT", False),
        ("x", None, True),
        ("x", "GPL-3.0-only", True),
        ("x", "AGPL-3.0-or-later OR MIT", False),
        ("x", "MIT AND (GPL-2.0-only OR Apache-2.0)", False),
        ("x", "MIT AND GPL-2.0-only", True),
        ("x", "(MIT OR Apache-2.0) AND SSPL-1.0", True),
        ("x", "Apache-2.0 WITH LLVM-exception", False),
        ("x", "GPL-2.0-only WITH Classpath-exception-2.0", True),
        ("psycopg", "LGPL-3.0-only", False),
        ("x", "LGPL-3.0-only", True),
        ("x", "LicenseRef-Proprietary", True),
    ],
)
def test_what_is_refused(name: str, licence: str | None, refused: bool) -> None:
    assert licences.refused(name, licence) is refused


def test_the_document_names_every_command() -> None:
    """docs/supply.md is what people read; the Makefile is what they run."""
    text = (ROOT / "docs" / "supply.md").read_text()
    commands = set(re.findall(r"`make ([a-z-]+)", text))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"licences", "sbom", "audit", "constraints", "hashes"} <= commands <= targets
