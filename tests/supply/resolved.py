"""Does constraints.txt say what pyproject.toml comes to? `make constraints` resolves it anew.

It also pins what torch needs where there is a GPU, which only the index knows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.requirements import ROOT, pins

__all__ = ["main"]

#: What installs the rest.
_OWN = {"uv"}


def main() -> int:
    """Print every difference; returns 1 where there is one."""
    uv = str(Path(sys.executable).with_name("uv"))
    done = subprocess.run(
        [uv, "pip", "compile", "--quiet", "--python", sys.executable, "--all-extras", "--no-header",
         "--no-annotate", "-c", "constraints.txt", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stderr, file=sys.stderr)  # noqa: T201
        return done.returncode
    lines = [Requirement(line) for line in done.stdout.splitlines() if line.strip()]
    found = {canonicalize_name(one.name): str(one.specifier) for one in lines}
    pinned = {name: str(one.specifier) for name, one in pins().items() if name not in _OWN}
    for name in sorted(found.keys() | pinned.keys()):
        if found.get(name) != pinned.get(name):
            said, wanted = pinned.get(name, "nothing"), found.get(name, "nothing")
            print(f"{name}: pinned {said}, needed {wanted}")  # noqa: T201
    return int(found != pinned)


if __name__ == "__main__":
    sys.exit(main())
