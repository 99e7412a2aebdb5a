"""Dependencies are pinned, installed as pinned, and under accepted licences."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name

from tests.supply import licences
from tests.supply.requirements import ROOT, direct_requirements, pins, required_packages

#: The installer, what torch requires on a GPU, and gcsfs, which has its own environment
#: (`make clients`); `make constraints` checks these.
_NOT_INSTALLED_HERE = re.compile(
    r"uv|triton|(nvidia|cuda)-.*|gcsfs|decorator|(google|grpc-google)-.*|proto-plus"
    r"|oauthlib|requests-oauthlib|pyasn1(-modules)?"
)


@pytest.mark.parametrize("requirement", direct_requirements(), ids=lambda item: item.name)
def test_every_direct_requirement_has_a_compatible_pin(requirement: object) -> None:
    """Without one, `pip install -c constraints.txt` takes any version or fails."""
    pin = pins()[canonicalize_name(requirement.name)]  # type: ignore[attr-defined]
    (exact,) = pin.specifier
    assert exact.operator == "=="
    assert requirement.specifier.contains(exact.version, prereleases=True)  # type: ignore[attr-defined]


def test_exactly_the_required_packages_are_pinned() -> None:
    """Transitive requirements included."""
    pinned, required = set(pins()), set(required_packages())
    assert required - pinned == set()
    assert [name for name in pinned - required if not _NOT_INSTALLED_HERE.fullmatch(name)] == []


def test_installed_versions_match_the_pins() -> None:
    """The tests then run what users install."""
    differing = {
        name: (package.version, str(pins()[name].specifier))
        for name, package in required_packages().items()
        if name in pins() and not pins()[name].specifier.contains(package.version, prereleases=True)
    }
    assert differing == {}


def test_every_licence_is_accepted() -> None:
    by_name = {name: licences.licence_of(package) for name, package in required_packages().items()}
    assert len(by_name) > 100
    assert {name: text for name, text in by_name.items() if licences.is_refused(name, text)} == {}


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
def test_licence_expressions_are_evaluated(name: str, licence: str | None, refused: bool) -> None:
    assert licences.is_refused(name, licence) is refused


def test_document_names_existing_commands() -> None:
    text = (ROOT / "docs" / "supply.md").read_text()
    commands = set(re.findall(r"`make ([a-z-]+)", text))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"licences", "sbom", "audit", "constraints", "hashes"} <= commands <= targets
