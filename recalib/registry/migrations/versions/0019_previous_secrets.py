"""Earlier secrets of a webhook, which sign its messages until they end."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; webhooks of earlier versions have none."""
    op.add_column("webhooks", sa.Column("previous_secrets", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("webhooks", "previous_secrets")
