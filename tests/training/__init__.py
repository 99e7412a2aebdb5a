"""Tests of the worker, in this process and in worker processes that are killed."""
