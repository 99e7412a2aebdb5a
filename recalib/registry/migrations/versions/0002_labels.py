"""Keys that prediction ids are signed with, and the labels that came for them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables; the first id that is made brings the first key."""
    op.create_table(
        "signing_keys",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "labels",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("predicted_at", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("raw_confidence", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("predicted", sa.Integer(), nullable=False),
        sa.Column("label", sa.Integer(), nullable=False),
        sa.Column("disputed", sa.Boolean(), nullable=False),
        sa.Column("labelled_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "predicted_at", "digest", name=op.f("pk_labels")
        ),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop both; ids that are out are worth nothing from then on."""
    op.drop_table("labels")
    op.drop_table("signing_keys")
