"""Run by Alembic for each upgrade; the caller brings the connection, its transaction and lock."""

from alembic import context

from recalib.registry.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # Both databases take schema changes back with the transaction; Alembic doubts SQLite's.
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
