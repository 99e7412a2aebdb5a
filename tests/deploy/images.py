"""Contents of the Dockerfile's images: `python -m tests.deploy.images` prints sizes.

It counts the installed packages without bytecode, and neither Python nor Debian.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.composed import ROOT

__all__ = ["CUT", "DOCKERFILE", "SERVING", "is_cut", "needed", "stage"]

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def stage(name: str) -> str:
    """Return the lines of a stage."""
    match = re.search(
        rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    assert match is not None, name
    return match[1]


#: Extras of the serving image.
SERVING = {"serve", "s3", "telemetry"}
#: Patterns of folders and files that the serving image removes.
CUT = re.findall(r'-path "([^"]+)"', stage("build-serve"))


def needed(extras: set[str]) -> set[str]:
    """Return the names of all packages that these extras install."""
    packages: dict[str, set[str]] = {}
    waiting = [("recalib", extras)]
    while waiting:
        name, extra_names = waiting.pop()
        if name in packages and extra_names <= packages[name]:
            continue
        packages.setdefault(name, set()).update(extra_names)
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in {"", *packages[name]}):
                waiting.append((canonicalize_name(requirement.name), requirement.extras))
    return set(packages)


def is_cut(file: str, patterns: Sequence[str] = CUT) -> bool:
    """Return whether the serving image removes a file, relative to site-packages."""
    path = PurePosixPath(file)
    parts = [path, *path.parents][:-1]
    return any(
        fnmatch(f"lib/python/site-packages/{part}", pattern)
        for part in parts
        for pattern in patterns
    )


def main() -> int:
    """Print the size of each package before and after removal, largest first, and the sums."""
    sizes = []
    for name in needed(SERVING) - {"recalib"}:
        total = remaining = 0
        for file in distribution(name).files or ():
            path = distribution(name).locate_file(file)
            if file.suffix != ".pyc" and path.is_file():
                size = path.stat().st_size
                total += size
                remaining += 0 if is_cut(str(file)) else size
        sizes.append((remaining, total, name))
    write = sys.stdout.write
    write("    MB  of MB\n")
    for remaining, total, name in sorted(sizes, reverse=True)[:12]:
        write(f"{remaining / 1e6:6.1f} {total / 1e6:6.1f}  {name}\n")
    sums = [sum(row[k] for row in sizes) / 1e6 for k in (0, 1)]
    write(f"{sums[0]:6.1f} {sums[1]:6.1f}  all {len(sizes)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
