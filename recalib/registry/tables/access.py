"""Tables of keys, sessions, signatures, the audit log and idempotent requests."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, LargeBinary, String, Table, Text

from recalib.registry.tables.base import METADATA, Json, Key, Name

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", Key, primary_key=True),
    # Unique over revoked keys too: a name in the audit trail means one key.
    Column("name", Name, nullable=False, unique=True),
    # SHA-256 of the secret; the secret is not stored.
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("scopes", Json, nullable=False),
    # Names of models; null for all.
    Column("models", Json),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    # Limits of the key, see `recalib.core.access.Limits`; null for none.
    Column("limits", Json),
)

sessions = Table(
    "sessions",
    METADATA,
    # SHA-256 of the token, which a browser holds in a cookie and the registry does not store.
    Column("digest", LargeBinary, primary_key=True),
    # Of the secret of the API key that signed in: a session ends with its key. Of a person, of the
    # name: no key has such a secret.
    Column("key_digest", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    # Name, scopes and models of a person whom the issuer of tokens has signed in; null for a key.
    Column("principal", Json),
)

signing_keys = Table(
    "signing_keys",
    METADATA,
    # The newest key signs. The primary key lets only one of two concurrent inserts succeed.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

audit = Table(
    "audit",
    METADATA,
    Column("id", Key, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("actor", Text, nullable=False),
    Column("action", String(64), nullable=False),
    # A name, not a foreign key: an entry outlives its model.
    Column("model", Name),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("result", String(16), nullable=False),
    Index("ix_audit_actor_id", "actor", "id"),
    Index("ix_audit_model_id", "model", "id"),
)

idempotency = Table(
    "idempotency",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False, index=True),
)
