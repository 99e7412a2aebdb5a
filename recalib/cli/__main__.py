"""`python -m recalib.cli`."""

from recalib.cli.main import main

main()
