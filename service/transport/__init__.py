"""Glue between HTTP and the handlers: errors, bodies, instruments, idempotency."""
