"""Under which licences are the packages that Recalib needs? `make licences` prints them.

What a package says of itself is read: an SPDX expression where it has one, else the texts and
classifiers of older packages, by the table below. What says nothing, or something that is not
listed here, is refused until somebody has looked at it.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from tests.supply.requirements import needed

__all__ = ["licence_of", "main", "refused"]

#: They ask for their text and a name to be kept, and for no more.
_PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
    "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib",
    "ZPL-2.1",
}  # fmt: skip
#: Copyleft that ends at the package itself, which is used as it comes and not changed: each
#: package by name, so that another one is looked at.
_WEAK = {
    "LGPL-3.0-only": {"psycopg", "psycopg-binary"},
    "MPL-2.0": {"certifi", "hypothesis", "orjson", "pathspec"},
}
#: What older packages call licences that have a name in SPDX.
_KNOWN_AS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License v2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
#: Packages that say nothing in their metadata, and what the licence in them is.
_LOOKED_UP = {"pysimdjson": "MIT"}


def licence_of(package: Distribution) -> str | None:
    """Return a package's licence as an SPDX expression, or None where it cannot be told."""
    name = canonicalize_name(package.name)
    if name in _LOOKED_UP:
        return _LOOKED_UP[name]
    said = package.metadata.get("License-Expression") or _spdx(package.metadata.get("License", ""))
    if said is None:
        classifiers = package.metadata.get_all("Classifier", [])
        kinds = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
        kinds = [one for one in kinds if one != "OSI Approved"]
        known = [_KNOWN_AS.get(one) for one in kinds]
        said = " AND ".join(sorted({one for one in known if one})) if all(known) else None
    try:
        return canonicalize_license_expression(said) if said else None
    except InvalidLicenseExpression:
        return None


def refused(name: str, licence: str | None) -> bool:
    """Whether a package may not be depended on: all of an AND must be allowed, and one of an OR."""
    if licence is None:
        return True
    tokens = re.findall(r"\(|\)|[^()\s]+(?: WITH [^()\s]+)?", licence)
    return not _allowed(name, tokens)


def main() -> int:
    """Print a line for each package; returns 1 where there is one that may not be depended on."""
    wrong = []
    for name, package in sorted(needed().items()):
        licence = licence_of(package)
        mark = ""
        if refused(name, licence):
            wrong.append(name)
            mark = "  <- refused"
        print(f"{name} {package.version}: {licence or 'unknown'}{mark}")  # noqa: T201
    if wrong:
        print(f"look at {', '.join(wrong)} (tests/supply/licences.py)", file=sys.stderr)  # noqa: T201
    return 1 if wrong else 0


def _allowed(name: str, tokens: list[str]) -> bool:
    """Read an expression: OR of ANDs of licences and of expressions in brackets."""
    some = False
    while True:
        every = _one(name, tokens)
        while tokens[:1] == ["AND"]:
            del tokens[0]
            every = _one(name, tokens) and every
        some = some or every
        if tokens[:1] != ["OR"]:
            return some
        del tokens[0]


def _one(name: str, tokens: list[str]) -> bool:
    first = tokens.pop(0)
    if first == "(":
        inner = _allowed(name, tokens)
        tokens.pop(0)
        return inner
    return first in _PERMISSIVE or name in _WEAK.get(first, ())


def _spdx(text: str) -> str | None:
    """Return what a short text is called in SPDX; a long one is the licence's own words."""
    text = text.strip()
    if text in _KNOWN_AS:
        return _KNOWN_AS[text]
    try:
        return canonicalize_license_expression(text) if len(text) < 60 else None
    except InvalidLicenseExpression:
        return None


if __name__ == "__main__":
    sys.exit(main())
