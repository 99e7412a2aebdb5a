"""Where data sets by reference may be: the roots that the operator lists.

A URI of a caller makes the server read. The address of an object store therefore never comes from a
URI: it consists of a scheme, a bucket and a path only. Schemes that name hosts, such as http, do
not exist here, so no URI reaches another address than the operator's store.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from recalib.errors import InputError

_SETTING = "RECALIB_DATASET_ROOTS"
_SCHEMES = ("file", "s3", "gs")
_MAX_LENGTH = 2_000
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
#: Of queries, fragments, chained URLs of fsspec and paths of Windows.
_FORBIDDEN = ("?", "#", "::", "\\")
#: URLs of data sets, for errors.
ACCEPTED_URLS = (
    f"file:///PATH, s3://BUCKET/PATH or gs://BUCKET/PATH of at most {_MAX_LENGTH} characters, "
    "without `..`, `?`, `#`, empty folders, user or port"
)
_MODEL = "{model}"


class _Place(NamedTuple):
    scheme: str
    #: Empty for files.
    bucket: str
    folders: tuple[str, ...]


class DatasetRoots:
    """Folders and prefixes of buckets that data sets may refer to.

    Parameters
    ----------
    text: URLs, separated by spaces. `{model}` in a path stands for the name of the model, so that
        models of different owners have different roots.

    Raises
    ------
    InputError: a word is no such URL.

    Examples
    --------
    >>> roots = DatasetRoots("s3://logits/{model}/ file:///data/validation")
    >>> roots.root_of("s3://logits/resnet/val/*.parquet", "resnet")
    's3://logits/resnet/'
    """

    def __init__(self, text: str) -> None:
        self._roots = text.split()
        for root in self._roots:
            place = _parse(root, _SETTING)
            if any(character in root for character in "*["):
                raise InputError(_SETTING, found=repr(root), accepted="folders, without wildcards")
            if _MODEL in place.bucket:
                raise InputError(_SETTING, found=repr(root), accepted=f"{_MODEL} in the path")

    @property
    def fixed(self) -> list[str]:
        """The roots that are the same for all models."""
        return [root for root in self._roots if _MODEL not in root]

    def root_of(self, uri: str, model: str) -> str:
        """Return the root that contains a URI.

        Raises
        ------
        InputError: the URI is not valid, or no root contains it.
        """
        place = _parse(uri, "uri")
        roots = [root.replace(_MODEL, model) for root in self._roots]
        for root in roots:
            scheme, bucket, folders = _parse(root, _SETTING)
            if place[:2] == (scheme, bucket) and place.folders[: len(folders)] == folders:
                return root
        accepted = f"a URI below {', '.join(roots)}" if roots else "no URI"
        raise InputError("uri", found=repr(uri), accepted=f"{accepted} (setting {_SETTING})")


def _parse(text: str, field: str) -> _Place:
    """Return the parts of a URL; raise `InputError` for anything unusual."""
    scheme, separator, rest = text.partition("://")
    bucket, _, path = rest.partition("/")
    folders = path.removesuffix("/").split("/") if path.strip("/") else []
    is_place = bucket == "" if scheme == "file" else _is_bucket(bucket)
    if not (
        separator
        and scheme in _SCHEMES
        and len(text) <= _MAX_LENGTH
        and is_plain(text)
        and is_place
        and not {"", ".", ".."} & set(folders)
        and (folders or not path)
    ):
        raise InputError(field, found=repr(text[:200]), accepted=ACCEPTED_URLS)
    return _Place(scheme, bucket, tuple(folders))


def is_plain(url: str) -> bool:
    """Return whether a URL has no part that file systems interpret, and is printable."""
    return url.isprintable() and not any(part in url for part in _FORBIDDEN)


def _is_bucket(name: str) -> bool:
    """Return whether a text is the name of a bucket, and no address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _BUCKET.fullmatch(name) is not None
    return False
