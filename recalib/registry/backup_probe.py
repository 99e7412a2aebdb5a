"""`python -m recalib.registry.backup_probe FOLDER HOURS`: exit with 0 if a recent backup exists.

For container engines that probe `recalib backup --every` by a command.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from recalib.core.exit_status import probe_exit_status
from recalib.registry.backup_rotation import backup_age


def main(folder: str, hours: str) -> int:
    """Run the probe, print the problem to standard error, and return the exit status."""
    return probe_exit_status(lambda: _find_problem(Path(folder), float(hours)))


def _find_problem(folder: Path, hours: float) -> str:
    age = backup_age(folder) / 3600
    if math.isinf(age):
        return f"{folder} has no backup"
    return "" if age <= hours else f"the newest backup in {folder} is {age:.1f} hours old"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
