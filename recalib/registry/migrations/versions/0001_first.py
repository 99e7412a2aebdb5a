"""Models, datasets, calibrators, aliases, jobs and idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
_JSON = sa.JSON(none_as_null=True)
_UNFINISHED = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    """Create everything."""
    op.create_table("alias_revision", sa.Column("revision", _KEY, nullable=False))
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_at"), "idempotency", ["created_at"])
    op.create_table(
        "models",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("labels", _JSON),
        sa.Column("latest_version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "alias_changes",
        sa.Column("revision", _KEY, autoincrement=False, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("alias", _NAME, nullable=False),
        sa.Column("from_version", sa.Integer()),
        sa.Column("to_version", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_alias_changes_model_id_models")
        ),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_alias_changes")),
    )
    op.create_index(
        "ix_alias_changes_model_id_alias_revision",
        "alias_changes",
        ["model_id", "alias", "revision"],
    )
    op.create_table(
        "datasets",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("input", sa.String(length=16), nullable=False),
        sa.Column("metrics", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_datasets_model_id_models")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("model_id", "name", name=op.f("uq_datasets_model_id_name")),
    )
    op.create_table(
        "jobs",
        sa.Column("sequence", _KEY, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("model_id", _KEY),
        sa.Column("unique_key", sa.Text()),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires", sa.Double()),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("progress", _JSON),
        sa.Column("checkpoint", _JSON),
        sa.Column("result", _JSON),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id_models")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_jobs")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
    )
    op.create_index("ix_jobs_model_id_sequence", "jobs", ["model_id", "sequence"])
    op.create_index("ix_jobs_state_priority_sequence", "jobs", ["state", "priority", "sequence"])
    op.create_index(
        "uq_jobs_unfinished_unique_key",
        "jobs",
        ["unique_key"],
        unique=True,
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )
    op.create_table(
        "calibrators",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", _KEY),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("card", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("parameters", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_calibrators_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_calibrators_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_calibrators_model_id_models")
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_calibrators")),
        sa.UniqueConstraint("job_id", name=op.f("uq_calibrators_job_id")),
    )
    op.create_table(
        "aliases",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("alias", _NAME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", _KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["calibrators.model_id", "calibrators.version"],
            name=op.f("fk_aliases_model_id_version_calibrators"),
        ),
        sa.ForeignKeyConstraint(
            ["revision"], ["alias_changes.revision"], name=op.f("fk_aliases_revision_alias_changes")
        ),
        sa.PrimaryKeyConstraint("model_id", "alias", name=op.f("pk_aliases")),
    )
    # The one row that every alias change counts up.
    op.execute("INSERT INTO alias_revision (revision) VALUES (0)")


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("aliases")
    op.drop_table("calibrators")
    op.drop_index(
        "uq_jobs_unfinished_unique_key",
        table_name="jobs",
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )
    op.drop_index("ix_jobs_state_priority_sequence", table_name="jobs")
    op.drop_index("ix_jobs_model_id_sequence", table_name="jobs")
    op.drop_table("jobs")
    op.drop_table("datasets")
    op.drop_index("ix_alias_changes_model_id_alias_revision", table_name="alias_changes")
    op.drop_table("alias_changes")
    op.drop_table("models")
    op.drop_index(op.f("ix_idempotency_created_at"), table_name="idempotency")
    op.drop_table("idempotency")
    op.drop_table("alias_revision")
