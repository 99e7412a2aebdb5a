"""The history of monitoring: state and evidence after each cohort."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add it; cohorts of earlier versions have none."""
    op.create_table(
        "assessments",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("started_at", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("assessed_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "started_at", "version", name=op.f("pk_assessments")),
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("assessments")
