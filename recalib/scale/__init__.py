"""Commands over data in many files, on threads, processes or a cluster.

A source is a file, a folder, a glob, a URL or a list of these (`recalib.files.fragments`); a
cluster is named as in `recalib.core.executors`. Every function reads the data in bounded memory.
Results are merged in the order of the fragments, so they do not depend on the number of workers.

>>> import recalib.scale
>>> result = recalib.scale.evaluate("s3://bucket/validation/", cluster="tcp://scheduler:8786")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recalib.scale.apply import Applied, apply
from recalib.scale.compare import compare
from recalib.scale.evaluate import evaluate
from recalib.scale.fit import fit

if TYPE_CHECKING:
    from recalib.scale.report import report

__all__ = ["Applied", "apply", "compare", "evaluate", "fit", "report"]


def __getattr__(name: str) -> Any:
    """Import `report` at its first use: it needs packages for pictures, which workers may lack."""
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from recalib.scale.report import report

    # The import has set the attribute to the module of the same name.
    globals()["report"] = report
    return report


def __dir__() -> list[str]:
    return sorted(__all__)
