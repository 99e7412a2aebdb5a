"""Alembic runs this for each upgrade; the caller passes the connection and holds the lock."""

from alembic import context

from recalib.registry.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # Both databases roll back schema changes with the transaction. Alembic's default for SQLite
    # assumes that it does not.
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
