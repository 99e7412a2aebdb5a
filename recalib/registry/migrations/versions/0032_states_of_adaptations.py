"""States of the adaptation to label shift by number, and the number of a labelled answer."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table and the column, 0 for none: servers of earlier versions do not write it."""
    op.create_table(
        "adaptations",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("state", sa.JSON(none_as_null=True), nullable=False),
    )
    op.add_column(
        "labels", sa.Column("adaptation", sa.BigInteger(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Drop both: answers are not adapted, and a label scores the state of its time."""
    op.drop_column("labels", "adaptation")
    op.drop_table("adaptations")
