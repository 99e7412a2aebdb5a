"""Training networks: asking for a run, and fetching what it delivered."""
