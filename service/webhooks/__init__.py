"""Receivers that get events by HTTP."""
