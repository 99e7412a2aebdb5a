"""${message}."""

import sqlalchemy as sa
from alembic import op

revision = "${up_revision}"
down_revision = "${down_revision}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Remove it."""
    ${downgrades if downgrades else "pass"}
