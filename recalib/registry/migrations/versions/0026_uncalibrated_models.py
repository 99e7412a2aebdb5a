"""Models that serve before the first fit, and the scales of their logits."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the setting, off for existing models, and the table of scales."""
    op.add_column(
        "models",
        sa.Column("serve_uncalibrated", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "logit_scales",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("dataset_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("summary", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "dataset_id", name=op.f("pk_logit_scales")),
    )


def downgrade() -> None:
    """Remove both."""
    op.drop_table("logit_scales")
    op.drop_column("models", "serve_uncalibrated")
