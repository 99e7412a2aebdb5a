"""Versions of a model, measured on one of its data sets by a job."""
