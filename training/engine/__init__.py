"""Trains a network as a recipe says."""
