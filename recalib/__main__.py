"""`python -m recalib` is the command `recalib`."""

from recalib.cli.main import main

main()
