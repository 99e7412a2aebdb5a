"""Deletion, descriptions and tags, and retention settings of models."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_MODEL_COLUMNS = ("purged_at", "deleted_at", "retention", "tags", "description")


def upgrade() -> None:
    """Add them. The large columns of data sets and versions stay the last of their tables."""
    description = sa.Column("description", sa.Text(), nullable=False, server_default="")
    op.add_column("models", description)
    op.add_column("models", sa.Column("tags", sa.JSON(), nullable=True))
    op.add_column("models", sa.Column("retention", sa.JSON(), nullable=True))
    op.add_column("models", sa.Column("deleted_at", sa.Double(), nullable=True))
    op.add_column("models", sa.Column("purged_at", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("deleted_at", sa.Double(), nullable=True))
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    name = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
    op.create_table(
        "dataset_details",
        sa.Column("dataset_id", key, autoincrement=False, nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", sa.JSON(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name="fk_dataset_details_dataset_id_datasets"
        ),
        sa.PrimaryKeyConstraint("dataset_id", name="pk_dataset_details"),
    )
    op.create_table(
        "calibrator_details",
        sa.Column("model_id", key, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", sa.JSON(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_calibrator_details_model_id_models"
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name="pk_calibrator_details"),
    )
    op.create_table(
        "tombstones",
        sa.Column("revision", key, autoincrement=False, nullable=False),
        sa.Column("model", name, nullable=False),
        sa.Column("selector", name, nullable=True),
        sa.PrimaryKeyConstraint("revision", name="pk_tombstones"),
    )


def downgrade() -> None:
    """Remove them."""
    for table in ("tombstones", "calibrator_details", "dataset_details"):
        op.drop_table(table)
    op.drop_column("jobs", "deleted_at")
    for name in _MODEL_COLUMNS:
        op.drop_column("models", name)
