"""Hide every package that `pip install recalib`, or one with extras, does not install.

A program that tests start: `python -m tests.installation.hidden_packages STATEMENTS`. The
statements are Python. They call `run(name, function)`, which prints a line of JSON: the name, the
class of the error, its text, and the status of a program that has ended.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tomllib
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.requirements import ROOT

__all__ = ["base_distributions", "hide"]


def base_distributions(*requirements: str) -> set[str]:
    """Return the names of all packages that the installation needs: without extras by default.

    Parameters
    ----------
    requirements: what is installed beside it, such as `recalib[fit]`.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names, queue = {"recalib"}, [*project["dependencies"], *requirements]
    while queue:
        requirement = Requirement(queue.pop())
        name = canonicalize_name(requirement.name)
        if name == "recalib":
            extras = project["optional-dependencies"]
            queue += [item for extra in requirement.extras for item in extras[extra]]
        if name in names or not (requirement.marker is None or requirement.marker.evaluate()):
            continue
        names.add(name)
        with contextlib.suppress(PackageNotFoundError):  # of another platform
            queue += distribution(name).requires or []
    return names


class _Hiding:
    """A finder of modules that does not find some packages."""

    def __init__(self, finder: Any, hidden: set[str]) -> None:
        self._finder, self._hidden = finder, hidden

    def find_spec(self, name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] in self._hidden:
            return None
        return self._finder.find_spec(name, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def hide(*requirements: str) -> set[str]:
    """Hide the packages from imports of this process, and return their names."""
    base = base_distributions(*requirements)
    hidden = {
        name
        for name, owners in packages_distributions().items()
        if not base & {canonicalize_name(owner) for owner in owners}
    } - {"recalib", "service", "training", "tests"}
    sys.meta_path[:] = [_Hiding(finder, hidden) for finder in sys.meta_path]
    return hidden


def run(name: str, function: Callable[[], object]) -> None:
    """Call the function and print what became of it."""
    failure, text, status = "", "", 0
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            function()
        except SystemExit as end:
            status = end.code or 0
        except Exception as error:
            failure, text = type(error).__name__, str(error)
    print(json.dumps([name, failure, text or errors.getvalue(), status]), flush=True)  # noqa: T201


if __name__ == "__main__":
    hide()
    warnings.simplefilter("ignore")
    exec(sys.argv[1], {"run": run})  # noqa: S102
