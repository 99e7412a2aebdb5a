"""Databases for the tests (SQLite files, and a PostgreSQL that the suite starts itself)."""
