"""Groups of dependent rows: a session, an object in several frames, a request with its retries."""

from __future__ import annotations

from hashlib import blake2b

#: The bits of a number: it is exact in a double.
_BITS = 52


def group_number(name: str) -> int:
    """Return the number of a group, above 0 and below 2⁵², from its name; 0 for an empty name.

    It is a digest: of a million groups, two share a number with a probability of 1 in 9,000.
    """
    if not name:
        return 0
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=b"group").digest()
    return max(int.from_bytes(digest, "little") >> (64 - _BITS), 1)
