"""Fitted calibrators: asking for one, looking at it, promoting it."""
