"""Direct and transitive requirements of Recalib with all extras, from installed metadata."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["ROOT", "direct_requirements", "pins", "required_packages"]

ROOT = Path(__file__).resolve().parents[2]


def direct_requirements() -> list[Requirement]:
    """Return the requirements of pyproject.toml and of all its extras."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [Requirement(line) for lines in lists for line in lines]
    return [item for item in requirements if canonicalize_name(item.name) != "recalib"]


@cache
def pins() -> dict[str, Requirement]:
    """Return the pins of constraints.txt by canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [
        Requirement(line) for line in lines if line.strip() and not line.startswith("#")
    ]
    return {canonicalize_name(pin.name): pin for pin in requirements}


@cache
def required_packages() -> dict[str, Distribution]:
    """Return every required package on this machine, transitive ones included, by canonical name.

    Packages that an environment marker excludes here are missing, such as libraries for a GPU.
    """
    packages: dict[str, Distribution] = {}
    visited: set[tuple[str, str]] = set()
    queue = direct_requirements()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in visited:
                continue
            visited.add((name, extra))
            try:
                packages[name] = distribution(name)
            except PackageNotFoundError:
                continue  # tests/supply/test_supply.py reports direct ones
            queue += _requirements_of(packages[name], extra)
    return packages


def _requirements_of(package: Distribution, extra: str) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None:
            if not extra:
                yield requirement
        elif requirement.marker.evaluate({"extra": extra}):
            yield requirement
