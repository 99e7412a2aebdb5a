"""Check the licences of all required packages: `make licences`.

The licence comes from the package's metadata: its SPDX expression, or the texts and classifiers of
older packages, which the table below translates. A missing or unlisted licence is refused.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from tests.supply.requirements import required_packages

__all__ = ["is_refused", "licence_of", "main"]

#: These require only that the licence text and the authors' names are kept.
_PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
    "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib",
    "ZPL-2.1",
}  # fmt: skip
#: Weak copyleft, which covers the package itself. Packages are listed by name, so that each new one
#: is reviewed. None of them is modified.
_WEAK_COPYLEFT = {
    "LGPL-3.0-only": {"psycopg", "psycopg-binary"},
    "MPL-2.0": {"axe-playwright-python", "certifi", "hypothesis", "orjson", "pathspec", "tqdm"},
}
#: SPDX names of the licence texts that older packages use.
_SPDX_NAMES = {
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
#: Licences of packages whose metadata has none, read from the packages. Most of docutils is in the
#: public domain; its file under the GPL is not in the package.
_MANUAL = {
    "axe-playwright-python": "MIT AND MPL-2.0",
    "docutils": "BSD-2-Clause AND BSD-3-Clause",
    "pysimdjson": "MIT",
}


def licence_of(package: Distribution) -> str | None:
    """Return a package's licence as an SPDX expression, or None if it is unknown."""
    name = canonicalize_name(package.name)
    if name in _MANUAL:
        return _MANUAL[name]
    expression = package.metadata.get("License-Expression")
    expression = expression or _to_spdx(package.metadata.get("License", ""))
    if expression is None:
        classifiers = package.metadata.get_all("Classifier", [])
        titles = [
            text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")
        ]
        names = [_SPDX_NAMES.get(title) for title in titles if title != "OSI Approved"]
        expression = " AND ".join(sorted({name for name in names if name})) if all(names) else None
    try:
        return canonicalize_license_expression(expression) if expression else None
    except InvalidLicenseExpression:
        return None


def is_refused(name: str, licence: str | None) -> bool:
    """Return whether a licence is refused: all terms of an AND and one of an OR must be allowed."""
    if licence is None:
        return True
    tokens = re.findall(r"\(|\)|[^()\s]+(?: WITH [^()\s]+)?", licence)
    return not _allowed(name, tokens)


def main() -> int:
    """Print the licence of each package; return 1 if one is refused."""
    refused = []
    for name, package in sorted(required_packages().items()):
        licence = licence_of(package)
        mark = ""
        if is_refused(name, licence):
            refused.append(name)
            mark = "  <- refused"
        print(f"{name} {package.version}: {licence or 'unknown'}{mark}")  # noqa: T201
    if refused:
        print(f"review {', '.join(refused)} (tests/supply/licences.py)", file=sys.stderr)  # noqa: T201
    return 1 if refused else 0


def _allowed(name: str, tokens: list[str]) -> bool:
    """Evaluate an expression: OR of ANDs of licences and of expressions in brackets."""
    any_allowed = False
    while True:
        all_allowed = _term_allowed(name, tokens)
        while tokens[:1] == ["AND"]:
            del tokens[0]
            all_allowed = _term_allowed(name, tokens) and all_allowed
        any_allowed = any_allowed or all_allowed
        if tokens[:1] != ["OR"]:
            return any_allowed
        del tokens[0]


def _term_allowed(name: str, tokens: list[str]) -> bool:
    first = tokens.pop(0)
    if first == "(":
        inner = _allowed(name, tokens)
        tokens.pop(0)
        return inner
    return first in _PERMISSIVE or name in _WEAK_COPYLEFT.get(first, ())


def _to_spdx(text: str) -> str | None:
    """Return the SPDX name of a short text; a long one is the licence itself."""
    text = text.strip()
    if text in _SPDX_NAMES:
        return _SPDX_NAMES[text]
    try:
        return canonicalize_license_expression(text) if len(text) < 60 else None
    except InvalidLicenseExpression:
        return None


if __name__ == "__main__":
    sys.exit(main())
