"""The command line: `recalib --help`. The only package that may import everything."""

from recalib.cli.main import app, main

__all__ = ["app", "main"]
