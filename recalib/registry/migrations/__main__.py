"""`python -m recalib.registry.migrations MESSAGE`: write the next migration.

It holds the difference between `recalib.registry.tables` and the newest migration. Read it before
you commit it: Alembic treats a renamed column as a removal and an addition.
"""

import sys
from tempfile import TemporaryDirectory

from recalib.registry import migrate


def main() -> None:
    """Write the migration into `versions/` and print its path."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m recalib.registry.migrations MESSAGE")
    with TemporaryDirectory() as folder:
        migrate.write_revision(f"sqlite:///{folder}/schema.db", sys.argv[1])


if __name__ == "__main__":
    main()
