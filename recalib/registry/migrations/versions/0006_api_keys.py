"""API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "api_keys",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", _JSON, nullable=False),
        sa.Column("models", _JSON),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("name", name=op.f("uq_api_keys_name")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )


def downgrade() -> None:
    """Take it away again, with all keys."""
    op.drop_table("api_keys")
