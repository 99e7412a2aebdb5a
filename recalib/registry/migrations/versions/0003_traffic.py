"""What models want watched, and how many predictions there were of which confidence."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add a table, and two columns; rows that are there have segment 0 and nothing declared."""
    op.create_table(
        "traffic",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("segment", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bin", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("predictions", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "started_at", "segment", "bin", name=op.f("pk_traffic")
        ),
        sqlite_with_rowid=False,
    )
    op.add_column("models", sa.Column("monitoring", _JSON))
    op.add_column("labels", sa.Column("segment", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take them away again."""
    op.drop_column("labels", "segment")
    op.drop_column("models", "monitoring")
    op.drop_table("traffic")
