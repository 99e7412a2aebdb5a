"""`python -m training.probe`: ends with 0 where a worker finds its queue.

For container engines that probe by a command. A worker listens nowhere, and one that ends is
started anew by the engine; what can be asked is whether the database answers and is at our schema.
It is asked again and again, so torch and the drivers of buckets are left alone; `recalib doctor`
looks at everything.
"""

from __future__ import annotations

import sys

from recalib.exit_status import probe_exit_status
from recalib.registry import Registry
from recalib.settings import Settings

__all__ = ["main"]


def main() -> int:
    """Ask, say on standard error what is wrong, and return the exit status."""
    return probe_exit_status(_wrong)


def _wrong() -> str:
    settings = Settings()
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    try:
        # Looking at a file of SQLite's that is not there would make it.
        missing = registry.missing_database_file
        if missing is not None:
            return f"there is no {missing}"
        registry.check()
    finally:
        registry.close()
    return ""


if __name__ == "__main__":
    sys.exit(main())
