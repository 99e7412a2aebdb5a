"""Compare constraints.txt with a fresh resolution of pyproject.toml: `make constraints`.

constraints.txt also pins what torch requires on a machine with a GPU, which only the index lists.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.requirements import ROOT, pins

__all__ = ["main"]

#: The installer.
_INSTALLERS = {"uv"}


def main() -> int:
    """Print every difference; return 1 if there is one."""
    uv = str(Path(sys.executable).with_name("uv"))
    process = subprocess.run(
        [uv, "pip", "compile", "--quiet", "--python", sys.executable, "--all-extras", "--no-header",
         "--no-annotate", "-c", "constraints.txt", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if process.returncode:
        print(process.stderr, file=sys.stderr)  # noqa: T201
        return process.returncode
    lines = [Requirement(line) for line in process.stdout.splitlines() if line.strip()]
    resolved = {canonicalize_name(item.name): str(item.specifier) for item in lines}
    pinned = {name: str(pin.specifier) for name, pin in pins().items() if name not in _INSTALLERS}
    for name in sorted(resolved.keys() | pinned.keys()):
        if resolved.get(name) != pinned.get(name):
            pin, needed = pinned.get(name, "nothing"), resolved.get(name, "nothing")
            print(f"{name}: pinned {pin}, needed {needed}")  # noqa: T201
    return int(resolved != pinned)


if __name__ == "__main__":
    sys.exit(main())
