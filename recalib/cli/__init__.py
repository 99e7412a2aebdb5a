"""The command line: `recalib --help`. The only package that may import everything."""

from recalib.cli.main import app, main, root_command

__all__ = ["app", "main", "root_command"]
