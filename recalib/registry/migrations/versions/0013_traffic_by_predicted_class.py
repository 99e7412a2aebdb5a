"""Counts of traffic by predicted class."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it."""
    op.create_table(
        "class_traffic",
        sa.Column(
            "model_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicted", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("predictions", sa.BigInteger(), nullable=False),
        sa.Column("max_error_sum", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "started_at", "predicted", name=op.f("pk_class_traffic")
        ),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("class_traffic")
