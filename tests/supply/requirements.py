"""What Recalib needs with all of its extras, as the installed packages themselves say."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["ROOT", "direct", "needed", "pins"]

ROOT = Path(__file__).resolve().parents[2]


def direct() -> list[Requirement]:
    """Return the requirements in pyproject.toml, those of every extra and of the build too."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = [Requirement(one) for part in lists for one in part]
    return [one for one in found if canonicalize_name(one.name) != "recalib"]


@cache
def pins() -> dict[str, Requirement]:
    """Return what constraints.txt has, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(one.name): one for one in found}


@cache
def needed() -> dict[str, Distribution]:
    """Return every package that is needed here, directly or not, by canonical name.

    What a marker rules out on this machine is not there: a GPU's libraries, another system's.
    """
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    waiting = direct()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in asked:
                continue
            asked.add((name, extra))
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                continue  # `test_constraints` says so where it is one of ours
            waiting += _required(found[name], extra)
    return found


def _required(package: Distribution, extra: str) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None:
            if not extra:
                yield requirement
        elif requirement.marker.evaluate({"extra": extra}):
            yield requirement
