"""The metadata and the column types of all tables."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Integer, MetaData, String

# Names of constraints, for use in migrations.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite generates keys only if their type is exactly INTEGER.
Key = BigInteger().with_variant(Integer, "sqlite")
# Collation C sorts by bytes, as SQLite does: pages have the same order in both databases.
Name = String(128).with_variant(String(128, collation="C"), "postgresql")
Json = JSON(none_as_null=True)
