"""Schemas and field types that several features share."""
