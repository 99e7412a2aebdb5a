"""Data sets by reference: files that stay where they are, within the roots of the operator.

The registry stores a manifest, which lists the files with their sizes and version marks. A reader
refuses a file that has changed since.
"""

from __future__ import annotations

from recalib.references.listing import list_referenced, outage_errors
from recalib.references.manifest import (
    MANIFEST_TYPE,
    Manifest,
    ReferencedFile,
    check_content,
    content_digest,
    sha256_of,
)
from recalib.references.roots import DatasetRoots
from recalib.references.rows import ReferencedRows, read_referenced, unchanged
