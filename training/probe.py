"""`python -m training.probe`: exit with status 0 if a worker can use its queue.

This is for container engines that probe by a command. A worker has no port, and the engine restarts
a worker that ends, so the probe checks that the database answers and has the current schema. It
runs often, so it imports neither torch nor bucket drivers; `recalib doctor` checks everything.
"""

from __future__ import annotations

import sys

from recalib.core.exit_status import probe_exit_status
from recalib.registry import Registry
from recalib.settings import Settings


def main() -> int:
    """Run the probe, print the problem to standard error, and return the exit status."""
    return probe_exit_status(_find_problem)


def _find_problem() -> str:
    settings = Settings()
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    try:
        # Connecting to a missing SQLite file would create it.
        missing = registry.missing_database_file
        if missing is not None:
            return f"there is no {missing}"
        registry.check()
    finally:
        registry.close()
    return ""


if __name__ == "__main__":
    sys.exit(main())
