"""Logits that were kept, and candidates that are fitted on them and compared with the champion."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON(none_as_null=True)
_UNDECIDED = sa.text("verdict IS NULL")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "captures",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_captures_model_id_models")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_captures")),
    )
    op.create_index("ix_captures_model_id_last_at", "captures", ["model_id", "last_at"])
    op.create_table(
        "candidates",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("champion", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("through", sa.Double(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("state", _JSON, nullable=False),
        sa.Column("verdict", sa.String(length=16)),
        sa.Column("ended_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["calibrators.model_id", "calibrators.version"],
            name=op.f("fk_candidates_model_id_version_calibrators"),
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_candidates")),
    )
    op.create_index(
        "uq_candidates_undecided_model_id",
        "candidates",
        ["model_id"],
        unique=True,
        sqlite_where=_UNDECIDED,
        postgresql_where=_UNDECIDED,
    )


def downgrade() -> None:
    """Drop both; the files of logits stay in the blob store."""
    op.drop_index(
        "uq_candidates_undecided_model_id",
        table_name="candidates",
        sqlite_where=_UNDECIDED,
        postgresql_where=_UNDECIDED,
    )
    op.drop_table("candidates")
    op.drop_index("ix_captures_model_id_last_at", table_name="captures")
    op.drop_table("captures")
