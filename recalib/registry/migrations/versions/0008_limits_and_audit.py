"""API keys have limits of their own, and there is one place that says who did what."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")


def upgrade() -> None:
    """Add a column, of which keys that there are have nothing, and a table."""
    op.add_column("api_keys", sa.Column("limits", sa.JSON(none_as_null=True)))
    op.create_table(
        "audit",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_actor_id", "audit", ["actor", "id"])
    op.create_index("ix_audit_model_id", "audit", ["model", "id"])


def downgrade() -> None:
    """Take both away: keys go on, without limits of their own."""
    op.drop_table("audit")
    op.drop_column("api_keys", "limits")
