"""Descriptions, tags and deletion stand in the rows of data sets and versions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Copy the rows of the tables of details, and drop the tables."""
    for table in ("datasets", "calibrators"):
        for column in _columns():
            op.add_column(table, column)
    op.add_column("datasets", sa.Column("uri", sa.Text()))
    op.execute("""
        UPDATE datasets
        SET description = d.description, tags = d.tags, deleted_at = d.deleted_at, uri = d.uri
        FROM dataset_details d WHERE d.dataset_id = datasets.id
    """)
    op.execute("""
        UPDATE calibrators
        SET description = d.description, tags = d.tags, deleted_at = d.deleted_at
        FROM calibrator_details d
        WHERE d.model_id = calibrators.model_id AND d.version = calibrators.version
    """)
    op.drop_table("dataset_details")
    op.drop_table("calibrator_details")
    if op.get_bind().dialect.name == "sqlite":
        _move_to_end("datasets", "row_digests")
        # SQLite adds a column that is not null only with a default.
        _move_to_end("calibrators", "parameters", nullable=False, server_default=sa.text("x''"))
        _move_to_end("calibrators", "row_digests")


def downgrade() -> None:
    """Create the tables again. That versions without a row were deleted is lost."""
    op.create_table(
        "dataset_details",
        sa.Column("dataset_id", _KEY, autoincrement=False, nullable=False),
        *_columns(),
        sa.Column("uri", sa.Text()),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_details_dataset_id_datasets")
        ),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_details")),
    )
    op.create_table(
        "calibrator_details",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        *_columns(),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_calibrator_details_model_id_models")
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_calibrator_details")),
    )
    op.execute("""
        INSERT INTO dataset_details (dataset_id, description, tags, deleted_at, uri)
        SELECT id, description, tags, deleted_at, uri FROM datasets
    """)
    op.execute("""
        INSERT INTO calibrator_details (model_id, version, description, tags, deleted_at)
        SELECT model_id, version, description, tags, deleted_at FROM calibrators
    """)
    op.drop_column("datasets", "uri")
    for table in ("datasets", "calibrators"):
        for column in _columns():
            op.drop_column(table, column.name)


def _columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", sa.JSON(none_as_null=True)),
        sa.Column("deleted_at", sa.Double()),
    ]


def _move_to_end(table: str, name: str, **options: Any) -> None:
    """Move a large column: SQLite reads all columns before one that a query selects."""
    op.add_column(table, sa.Column("moved", sa.LargeBinary(), **options))
    columns = sa.table(table, sa.column("moved"), sa.column(name))
    op.execute(sa.update(columns).values(moved=columns.c[name]))
    op.drop_column(table, name)
    op.alter_column(table, "moved", new_column_name=name)
