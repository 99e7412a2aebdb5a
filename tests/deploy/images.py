"""Contents of the Dockerfile's images: `python -m tests.deploy.images` prints sizes.

Of packages as they are installed here, without bytecode; Python and Debian come besides.
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
    found = re.search(
        rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    assert found is not None, name
    return found[1]


#: Extras of the serving image.
SERVING = {"serve", "s3", "telemetry"}
#: Patterns of folders and files that the serving image removes.
CUT = re.findall(r'-path "([^"]+)"', stage("build-serve"))


def needed(extras: set[str]) -> set[str]:
    """Return the names of all packages that these extras install."""
    found: dict[str, set[str]] = {}
    waiting = [("recalib", extras)]
    while waiting:
        name, wanted = waiting.pop()
        if name in found and wanted <= found[name]:
            continue
        found.setdefault(name, set()).update(wanted)
        for text in distribution(name).requires or ():
            one = Requirement(text)
            marker = one.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in {"", *found[name]}):
                waiting.append((canonicalize_name(one.name), one.extras))
    return set(found)


def is_cut(file: str, patterns: Sequence[str] = CUT) -> bool:
    """Return whether the serving image removes a file, relative to site-packages."""
    path = PurePosixPath(file)
    parts = [path, *path.parents][:-1]
    return any(
        fnmatch(f"lib/python/site-packages/{part}", one) for part in parts for one in patterns
    )


def main() -> int:
    """Print the size of each package before and after removal, largest first, and the sums."""
    found = []
    for name in needed(SERVING) - {"recalib"}:
        whole = left = 0
        for file in distribution(name).files or ():
            path = distribution(name).locate_file(file)
            if file.suffix != ".pyc" and path.is_file():
                size = path.stat().st_size
                whole += size
                left += 0 if is_cut(str(file)) else size
        found.append((left, whole, name))
    write = sys.stdout.write
    write("    MB  of MB\n")
    for left, whole, name in sorted(found, reverse=True)[:12]:
        write(f"{left / 1e6:6.1f} {whole / 1e6:6.1f}  {name}\n")
    sums = [sum(one[k] for one in found) / 1e6 for k in (0, 1)]
    write(f"{sums[0]:6.1f} {sums[1]:6.1f}  all {len(found)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
