"""Work that is done elsewhere: its state, its progress, its result."""
